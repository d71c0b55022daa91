"""What a mask hides from queries, and whether that may be left out of all that is computed of their scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from dort_compare.rewrites.axes import COLUMNS, REDUCTIONS, ROWS, Axes, Axis, turned
from dort_compare.rewrites.graph import LOWEST, is_low, is_product, number, sizes_of

Known = Callable[[ir.Value], np.ndarray[Any, Any] | None]
"""The elements of a value that is always the same."""
_SAME = {"Cast", "Identity", "Transpose"}


class Left(Enum):
    """What is known of the elements that a mask hides."""

    LOW = "so low that its exponential is 0 beside those of its row"
    ZERO = "0"


class Mask(NamedTuple):
    """A mask over scores: the node that lays it over them, what their axes run along, and which query sees which key.

    ``seen`` is a bool array (queries, keys).
    """

    node: ir.Node
    queries: Axis
    keys: Axis
    seen: np.ndarray[Any, Any]
    left: Left


def mask_among(nodes: Sequence[ir.Node], axes: Axes, known: Known) -> Mask | None:
    """The first mask that is always the same, and shows each query something, but not everything."""
    for node in nodes:
        result = node.outputs[0]
        queries, keys = (axes.of(result, axis) for axis in (ROWS, COLUMNS))
        laid = _laid(node, known) if queries and keys and queries != keys else None
        if queries and keys and laid:
            every, left = laid
            sizes = (sizes_of(result) or [])[-2:]
            seen = np.broadcast_to(every.any(axis=tuple(range(every.ndim - 2))), sizes)
            if every.any(axis=-1).all() and not seen.all():
                return Mask(node, queries, keys, seen, left)
    return None


def _laid(node: ir.Node, known: Known) -> tuple[np.ndarray[Any, Any], Left] | None:
    """Where a node leaves what it is given, and what it makes of the rest."""
    if node.op_type == "Add":
        for bias in node.inputs:
            elements = known(bias) if bias is not None else None
            if elements is not None and elements.ndim:
                return ~(elements <= LOWEST), Left.LOW  # NaN is seen
    if node.op_type == "Where" and node.inputs[0] is not None:
        condition = known(node.inputs[0])
        chosen, other = (_left(number(value)) for value in node.inputs[1:])
        if condition is not None and condition.ndim and other:
            return condition, other
        if condition is not None and condition.ndim and chosen:
            return ~condition, chosen
    return None


def _left(constant: float | None) -> Left | None:
    if constant == 0:
        return Left.ZERO
    return Left.LOW if is_low(constant) else None


def why_it_matters(nodes: Sequence[ir.Node], axes: Axes, mask: Mask) -> str | None:
    """What is computed of elements that ``mask`` hides; None where nothing else would change without them."""
    left: dict[ir.Value | None, Left | None] = {}
    for node in nodes:
        if node is mask.node:
            left[node.outputs[0]] = mask.left
            continue
        gone = [left.get(value) or _left(number(value)) for value in node.inputs]
        if not _joins_only_zeros(node, axes, mask, gone):
            return f"{node.op_type} joins queries or keys, and what is hidden from them is not known to be nothing"
        left[node.outputs[0]] = _what_is_left(node, gone)
    return None


def _joins_only_zeros(node: ir.Node, axes: Axes, mask: Mask, gone: Sequence[Left | None]) -> bool:
    """Whether what is hidden adds nothing to the sums, or the largest elements, that a node computes along its
    operands."""
    if node.op_type in REDUCTIONS:
        along = axes.of_operand(node, 0, COLUMNS)
        neutral = Left.ZERO if node.op_type == "ReduceSum" else Left.LOW
        return along != mask.queries and (along != mask.keys or gone[0] is neutral)
    if is_product(node):
        along = axes.of_operand(node, 0, turned(node, "transA")[1])
        others = {axes.of(node.outputs[0], ROWS), axes.of(node.outputs[0], COLUMNS)}
        is_masked = along == mask.keys or (along == mask.queries and mask.keys in others)
        return not is_masked or _is_zero(gone)
    return True


def _is_zero(factors: Sequence[Left | None]) -> bool:
    """Whether a product is 0: of 0 with what may be -inf it is NaN."""
    return Left.ZERO in factors and Left.LOW not in factors


def _what_is_left(node: ir.Node, gone: Sequence[Left | None]) -> Left | None:
    """What a node makes of elements of which ``gone`` is known."""
    first, last = gone[0], gone[-1]
    match node.op_type:
        case "Exp" | "Softmax":
            left = Left.ZERO if first is Left.LOW else None
        case "Mul":
            left = Left.ZERO if _is_zero(gone) else None
        case "Div":
            left = first if first is Left.ZERO is not last else None
        case "Neg":
            left = first if first is Left.ZERO else None
        case "Add" | "Sub":
            left = first if last is not Left.LOW and (first is Left.LOW or first is last) else None
        case "Where":
            left = last if gone[1] is last else None
        case _:
            left = first if node.op_type in _SAME else None
    return left
