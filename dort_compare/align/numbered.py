"""A number for what each value of two models is: the same for the same expression of the same values."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dort_compare.align.content import Sketch
from dort_compare.align.expressions import COMMUTATIVE, VIEWS, attributes_of, is_transparent, operator_of
from dort_compare.align.orders import BY_ELEMENT, followed, permutation
from dort_compare.align.sides import Side
from dort_compare.randomness import may_draw
from dort_compare.trace.dataflow import Node


@dataclass(eq=False)
class Numbers:
    """One number for each expression, whichever model it stands in: equal numbers, equal values, if nothing departs.

    An expression is an operator with its attributes and the numbers of its operands, in order unless the operator
    commutes. Identity, casts within a kind and reshapes back to the first shape are what they are made from.
    """

    _table: dict[Hashable, int] = field(default_factory=dict)
    _roots: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    _next: Iterable[int] = field(default_factory=itertools.count)

    def fresh(self) -> int:
        """A number that nothing else has."""
        return next(iter(self._next))

    def of(self, key: Hashable) -> int:
        """The number of an expression."""
        if key not in self._table:
            self._table[key] = self.fresh()
        return self._table[key]

    def view(self, number: int, shape: tuple[int, ...], new_shape: tuple[int, ...]) -> int:
        """The number of a value of ``shape`` in a new shape."""
        root, first_shape = self._roots.get(number, (number, shape))
        if new_shape == first_shape:
            return root
        found = self.of(("view", root, new_shape))
        self._roots[found] = root, first_shape
        return found

    def root(self, number: int) -> int:
        """The number of what a view shows; the number itself for everything else."""
        return self._roots[number][0] if number in self._roots else number

    def of_constant(self, sketch: Sketch) -> int:
        """The number of a constant: dtype does not matter, nor the shape of a single element."""
        shape = sketch.shape if sketch.group[1] != 1 else ()
        return self.of(("constant", sketch.kind, shape, sketch.exact))


class Numbered:
    """The numbers of the values of one side, as far as they are known."""

    def __init__(self, side: Side, numbers: Numbers) -> None:
        self.side = side
        self.numbers = numbers
        self.of: dict[str, int] = {}
        self._attributes: dict[int, Hashable] = {}

    def number_all(self, inputs: Iterable[str]) -> None:
        """Numbers every value: ``inputs`` by numbers that nothing else has, what an expression makes by its."""
        for name in inputs:
            self.of[name] = self.numbers.fresh()
        for name in self.side.values():
            if name in self.of:
                continue
            sketch = self.side.sketches[name]
            is_constant = sketch.is_small_integer or name not in self.side.flow.producer
            number = self.numbers.of_constant(sketch) if is_constant else self.expression(name)
            self.of[name] = self.numbers.fresh() if number is None else number

    def bearers(self) -> Mapping[int, Sequence[str]]:
        """The values by number."""
        found: dict[int, list[str]] = {}
        for name, number in self.of.items():
            found.setdefault(number, []).append(name)
        return found

    def attributes(self, node: Node) -> Hashable:
        if node.index not in self._attributes:
            self._attributes[node.index] = attributes_of(node, self.side.flow)
        return self._attributes[node.index]

    def root(self, name: str) -> int | None:
        """The number of a value, whatever its shape; None where it is not known."""
        number = self.of.get(name)
        return None if number is None else self.numbers.root(number)

    def is_passage(self, name: str) -> bool:
        """Whether a value has the elements of the first operand of its node, in another shape or dtype perhaps."""
        node = self.side.node(name)
        if node is None or name != node.results[0]:
            return False
        is_view = node.proto.op_type in VIEWS and (node.operands[0] in self.side.orders) == (name in self.side.orders)
        if not (is_view or is_transparent(node) or self._is_shown_alike(node)):
            return False
        shown, made = self.side.sketches.get(node.operands[0]), self.side.sketches.get(name)
        return shown is not None and made is not None and shown.may_equal(made)

    def _is_shown_alike(self, node: Node) -> bool:
        """Whether a transpose only lays out what the other model holds in one order."""
        if node.proto.op_type != "Transpose" or not self.side.orders:
            return False
        plain = tuple(range(len(self.side.sketches[node.results[0]].shape)))
        before, after = (self.side.orders.get(name, plain) for name in (node.operands[0], node.results[0]))
        return followed(permutation(node, len(plain)), after) == before

    def readers(self, name: str) -> list[tuple[Node, int]]:
        """Who reads a value, itself or in another shape: node and which operand."""
        found, todo = [], [name]
        while todo:
            for node, slot in self.side.flow.readers.get(todo.pop(), ()):
                if slot == 0 and self.is_passage(node.results[0]):
                    todo.append(node.results[0])
                else:
                    found.append((node, slot))
        return found

    def operands(self, node: Node) -> tuple[int | None, ...]:
        """The numbers of what a node reads; None for what is left out or not known.

        What it reads in another order of dimensions than it is shown in has a number of its own, unless the node
        computes element by element, and its result is shown in the same.
        """
        orders = self.side.orders
        read = {orders[name] for name in node.operands if name in orders}
        if not read or (node.proto.op_type in BY_ELEMENT and read == {orders.get(node.results[0])}):
            return tuple(self.of.get(name) for name in node.operands)
        return tuple(map(self._as_held, node.operands))

    def _as_held(self, name: str) -> int | None:
        number, order = self.of.get(name), self.side.orders.get(name)
        return number if number is None or order is None else self.numbers.of(("order", number, order))

    def expression(self, name: str) -> int | None:
        """The number of a result by how it is computed; None where an operand has none or chance decides."""
        node, slot = self.side.flow.producer[name]
        if self.is_passage(name):
            shown, sketches = self.of.get(node.operands[0]), self.side.sketches
            shapes = sketches[node.operands[0]].shape, sketches[name].shape
            return None if shown is None else self.numbers.view(shown, *shapes)
        operands = self.operands(node)
        if may_draw(node.proto, self.side.flow.constants) or any(
            n and o is None for n, o in zip(node.operands, operands, strict=True)
        ):
            return None
        if node.proto.op_type in COMMUTATIVE:
            operands = tuple(sorted(number for number in operands if number is not None))
        while operands and operands[-1] is None:
            operands = operands[:-1]
        return self.numbers.of((operator_of(node), self.attributes(node), operands, slot))
