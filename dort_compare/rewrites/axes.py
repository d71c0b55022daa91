"""Which axes of the values of a graph run along the same thing, such as the keys of attention."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from dort_compare.rewrites.graph import ELEMENTWISE, is_over_last, is_product, sizes_of, turns_matrices

ROWS, COLUMNS = -2, -1
REDUCTIONS = {"ReduceMax", "ReduceSum", "Softmax"}
Axis = tuple[object, int]
"""Of a value that nodes make, or of one operand of one node: the same matrix may be the queries and the keys."""


class Axes:
    """The last two axes of all values, by what they run along.

    ``unknown`` is the type of a node that does what is not understood, None where there is none.
    """

    def __init__(self, nodes: Iterable[ir.Node]) -> None:
        self._nodes = {*nodes}
        self._first: dict[Axis, Axis] = {}
        self.unknown = next((node.op_type for node in nodes if not self._join(node)), None)

    def of_operand(self, node: ir.Node, place: int, axis: int) -> Axis | None:
        """What an axis of an operand runs along; None where it is broadcast, or not there."""
        value = node.inputs[place]
        is_made = value is not None and value.producer() in self._nodes
        return self._along(value, axis, value if is_made else (node, place))

    def of(self, value: ir.Value, axis: int) -> Axis | None:
        """What an axis of a value that one of the nodes makes runs along; None where it has one element."""
        return self._along(value, axis, value)

    def _along(self, value: ir.Value | None, axis: int, owner: object) -> Axis | None:
        sizes = sizes_of(value) or []
        return self._root((owner, axis)) if len(sizes) >= -axis and sizes[axis] > 1 else None

    def _root(self, axis: Axis) -> Axis:
        while (before := self._first.get(axis, axis)) != axis:
            axis = before
        return axis

    def _join(self, node: ir.Node) -> bool:
        """Notes which axes of the operands run along which of the result; False where that is not known."""
        if any(sizes_of(value) is None for value in (*node.inputs, node.outputs[0]) if value is not None):
            return False
        if is_product(node):
            rows, inner = turned(node, "transA")
            also_inner, columns = turned(node, "transB")
            self._same(self.of_operand(node, 0, inner), self.of_operand(node, 1, also_inner))
            pairs = [(0, rows, ROWS), (1, columns, COLUMNS)]
        elif turns_matrices(node):
            pairs = [(0, COLUMNS, ROWS), (0, ROWS, COLUMNS)]
        elif node.op_type in REDUCTIONS and _is_along_columns(node):
            pairs = [(0, ROWS, ROWS), (0, COLUMNS, COLUMNS)]
        elif node.op_type in ELEMENTWISE:
            pairs = [(place, axis, axis) for place in range(len(node.inputs)) for axis in (ROWS, COLUMNS)]
        else:
            return False
        for place, axis, of_result in pairs:
            self._same(self.of_operand(node, place, axis), self.of(node.outputs[0], of_result))
        return True

    def _same(self, one: Axis | None, other: Axis | None) -> None:
        if one is not None and other is not None and one != other:
            self._first[one] = other


def _is_along_columns(node: ir.Node) -> bool:
    """Whether one of `REDUCTIONS` is over the last axis, which stays."""
    rank = len(sizes_of(node.inputs[0]) or [])
    if node.op_type == "Softmax":
        return rank > 0 and ("axis" not in node.attributes or node.attributes["axis"].as_int() % rank == rank - 1)
    return is_over_last(node, rank)


def turned(product: ir.Node, attribute: str) -> tuple[int, int]:
    """The axes of an operand that are rows and columns of the product's matrix."""
    is_turned = attribute in product.attributes and product.attributes[attribute].as_int() != 0
    return (COLUMNS, ROWS) if is_turned else (ROWS, COLUMNS)
