"""Constants in one place of both models that hold other numbers, although what both compute of them agrees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dort_compare.align.expressions import COMMUTATIVE, attributes_of, operator_of
from dort_compare.align.sides import Side
from dort_compare.measure.diff.value_rows import ValueRow
from dort_compare.measure.distance.metrics import distance
from dort_compare.trace.dataflow import Node
from dort_compare.trace.dataflow_run import constant

_SHOWN = 5
_Values = tuple[str, str]
"""A value of the first model and one of the second."""


@dataclass(frozen=True)
class OtherNumbers:
    """Two values without a pair in one place of both models, constants or what the same steps make of such, and the
    second model's value, computed of them, that agrees."""

    first: str
    second: str
    result: str
    is_constant: bool

    @property
    def reasons(self) -> dict[tuple[str, str], str]:
        """By model and name, why the value has no partner."""
        kind = "a constant of" if self.is_constant else "a step on"
        why = f"{kind} other numbers than {{!r}}, although {self.result!r} agrees"
        return {("first", self.first): why.format(self.second), ("second", self.second): why.format(self.first)}


def other_numbers(first: Side, second: Side, rows: Sequence[ValueRow]) -> list[OtherNumbers]:
    """Where a pair that agrees is made by the same steps of the same values but for constants: these and the steps.

    Integers that may be sizes, axes or positions are left out: there are several words for the same.
    """
    steps, found = _Steps(first, second, rows), dict[_Values, OtherNumbers]()
    for row in rows:
        if row.pair.is_main and row.status in ("equal", "noise"):
            for one, other in steps.unequal(row.pair.first, row.pair.second):
                told = OtherNumbers(one, other, row.pair.second, one in first.flow.constants)
                found.setdefault((one, other), told)
    return list(found.values())


def told_of(first: Side, second: Side, found: Sequence[OtherNumbers]) -> Iterator[str]:
    """A line for each of the constants, the first few, and one for what they change."""
    constants = [each for each in found if each.is_constant]
    for each in constants[:_SHOWN]:
        held = f"constant {each.second!r} of {second.flow.title} holds other numbers than {each.first!r} of"
        where = f"although {each.result!r}, which is computed of it, agrees on these inputs"
        yield f"{held} {first.flow.title} ({_apart(first, second, each)}), {where}"
    if len(constants) > _SHOWN:
        more = f"{len(constants) - _SHOWN} more constants of {second.flow.title}"
        yield f"{more} hold other numbers than their counterparts; --all shows them"
    steps = sorted((each.second for each in found if not each.is_constant), key=second.made_at)
    if steps:
        some = ", ".join(map(repr, steps[:_SHOWN])) + (", ..." if len(steps) > _SHOWN else "")
        where = f"{second.flow.title}: values that such constants change, although what follows agrees"
        yield f"{where}: {len(steps)}: {some}"


def _apart(first: Side, second: Side, each: OtherNumbers) -> str:
    one, other = (
        side.shown(name, constant(side.flow, name)) for side, name in ((first, each.first), (second, each.second))
    )
    found = distance(one, other).between("the first", "the second")
    return found.finding or found.told("first", "second")


class _Steps:
    """Compares the steps by which two models come to a pair, back to other pairs and to constants."""

    def __init__(self, first: Side, second: Side, rows: Sequence[ValueRow]) -> None:
        self._first, self._second = first, second
        self._agreeing = {(row.pair.first, row.pair.second) for row in rows if row.is_near}
        self._paired = {row.pair.first for row in rows}, {row.pair.second for row in rows}

    def unequal(self, first: str, second: str) -> list[_Values]:
        """The values in like places on the way to a pair that are no pairs; none where the ways differ in more than the
        numbers of constants."""
        found, todo = dict[_Values, None](), [(first, second)]
        while todo:
            operands = self._unequal_operands(*todo.pop())
            if operands is None or not all(map(self._may_differ, operands)):
                return []
            todo += [each for each in operands if each not in found and each[0] in self._first.flow.producer]
            found |= dict.fromkeys(operands)
        return list(found)

    def _unequal_operands(self, first: str, second: str) -> list[_Values] | None:
        """What two nodes read in like places and is not the same; None where they are not the same operation."""
        node, mine = self._first.node(first), self._second.node(second)
        if node is None or mine is None or operator_of(node) != operator_of(mine):
            return None
        if node.results.index(first) != mine.results.index(second):
            return None
        if attributes_of(node, self._first.flow) != attributes_of(mine, self._second.flow):
            return None
        commutes = node.proto.op_type in COMMUTATIVE
        theirs, ours = self._in_order(node, mine) if commutes else (node.operands, mine.operands)
        if len(theirs) != len(ours):
            return None
        return [each for each in zip(theirs, ours, strict=True) if not self._is_same(*each)]

    def _in_order(self, node: Node, mine: Node) -> tuple[Sequence[str], Sequence[str]]:
        """The operands without those that the other node reads too, what is computed before constants."""
        theirs = [one for one in node.operands if not any(self._is_same(one, other) for other in mine.operands)]
        ours = [other for other in mine.operands if not any(self._is_same(one, other) for one in node.operands)]
        constants, others = self._first.flow.constants, self._second.flow.constants
        return sorted(theirs, key=constants.__contains__), sorted(ours, key=others.__contains__)

    def _is_same(self, first: str, second: str) -> bool:
        if (first, second) in self._agreeing or first == second == "":
            return True
        one, other = self._first.sketches.get(first), self._second.sketches.get(second)
        return one is not None and other is not None and one.has_elements_of(other)

    def _may_differ(self, values: _Values) -> bool:
        """Whether two values are constants of one type, or computed and without a pair."""
        first, second = values
        one, other = self._first.sketches.get(first), self._second.sketches.get(second)
        if one is None or other is None:
            return False
        if first in self._first.flow.constants and second in self._second.flow.constants:
            may_be_sizes = one.is_small_integer and one.dtype.itemsize > 1
            return (one.dtype, one.shape) == (other.dtype, other.shape) and not may_be_sizes
        is_computed = first in self._first.flow.producer and second in self._second.flow.producer
        return is_computed and first not in self._paired[0] and second not in self._paired[1]
