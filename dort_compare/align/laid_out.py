"""Which values hold the elements of the other model's in another order of dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from dort_compare.align.content import ContentIndex, Sketch, tolerance
from dort_compare.align.orders import Order, moved_part
from dort_compare.align.sides import Side


@dataclass(frozen=True)
class Seen:
    """A model as it stands, the ``orders`` of what it has transposed, and sketches of that as it was ``before``, where
    its elements have moved."""

    side: Side
    orders: Mapping[str, Order]
    before: Mapping[str, Sketch]


def laid_out(seen: Seen, other: Seen) -> Side:
    """The model, with what the other one holds untransposed shown untransposed.

    That is what a transpose makes where the other model holds what it reads, and does not transpose that itself; where
    content does not tell, where the order is that of such a transpose, or one that the other model does not know. What
    is computed of such a value, in its order, is shown so too. A value that the other model holds as it stands is never
    shown otherwise.
    """
    orders = {name: seen.orders[name] for name in _Choice(seen, other).names() if name in seen.before}
    return replace(
        seen.side, sketches={**seen.side.sketches, **{name: seen.before[name] for name in orders}}, orders=orders
    )


class _Choice:
    def __init__(self, seen: Seen, other: Seen) -> None:
        self._seen, self._side, self._other = seen, seen.side, other.side
        self._known = frozenset(map(moved_part, other.orders.values()))
        self._tolerance = tolerance(halved=bool(seen.side.halves() or other.side.halves()))

    def names(self) -> set[str]:
        """The values that lie in another order, those that would if their sizes were not 1 among them."""
        found = set[str]()
        for name in self._side.values():
            if name in self._seen.orders and self._is_laid_out(name, found):
                found.add(name)
        return found

    def _is_laid_out(self, name: str, found: Set[str]) -> bool:
        node = self._side.node(name)
        if node is None:
            return True
        if self._stands(name) or (name in self._side.flow.outputs and self._is_the_same_in_any_order(name)):
            return False
        if node.proto.op_type != "Transpose":
            return any(operand in found for operand in node.operands)
        is_skipped = self._is_skipped(name)
        if is_skipped is not None:
            return is_skipped
        order = self._seen.orders[name]
        return order in self._skipped or moved_part(order) not in self._known

    def _stands(self, name: str) -> bool:
        """Whether the other model holds a value as it is."""
        return not self._is_the_same_in_any_order(name) and bool(self._near(self._side.sketches[name]))

    def _is_the_same_in_any_order(self, name: str) -> bool:
        sketch = self._side.sketches[name]
        return sketch.exact == self._seen.before.get(name, sketch).exact

    def _is_skipped(self, name: str) -> bool | None:
        """Whether the other model holds what is transposed here, and leaves it so; None where content does not tell, as
        where the other holds less of that than this one: what is transposed may be what it has not."""
        before = self._seen.before.get(name)
        if before is None or not before.is_telling:
            return None
        partners = self._near(before)
        own = self._own.near(before, self._tolerance)
        holds_all = len(_made_apart(partners, self._other)) >= len(_made_apart(own, self._side))
        return not any(map(self._is_transposed, partners)) if partners and holds_all else None

    def _is_transposed(self, other: str) -> bool:
        return any(node.proto.op_type == "Transpose" for node, _ in self._other.flow.readers.get(other, ()))

    def _near(self, sketch: Sketch) -> list[str]:
        return self._index.near(sketch, self._tolerance)

    @cached_property
    def _index(self) -> ContentIndex:
        return ContentIndex(self._other.sketches, self._other.values())

    @cached_property
    def _own(self) -> ContentIndex:
        return ContentIndex(self._side.sketches, self._side.values())

    @cached_property
    def _skipped(self) -> frozenset[Order]:
        """The orders of the transposes that content says the other model leaves out."""
        transposed = (name for name in self._seen.before if self._side.op_type(name) == "Transpose")
        return frozenset(self._seen.orders[n] for n in transposed if not self._stands(n) and self._is_skipped(n))


def _made_apart(alike: Sequence[str], side: Side) -> list[str]:
    """Those of values that hold the same which are not made of another of them, as copies are."""
    return [name for name in alike if (node := side.node(name)) is None or set(alike).isdisjoint(node.operands)]
