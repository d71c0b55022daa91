"""What a mask hides from queries, and whether that may be left out of all that is computed of their scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from dort_compare.rewrites.axes import COLUMNS, REDUCTIONS, ROWS, Axes, Axis, turned
from dort_compare.rewrites.graph import is_product, sizes_of
from dort_compare.rewrites.known import known_number

Elements = Callable[[ir.Value], np.ndarray[Any, Any] | None]
"""The elements of a value that is always the same; None of others."""


class Hidden(Enum):
    """What stands where a mask hides a key from a query."""

    NEVER = "-inf"
    LOW = "a finite number, so low that its exponential is 0 beside those of its row"
    ZERO = "0"


LOWEST = -1e30
"""Finite scores from here on down have no part in a softmax, beside others: no model's own are as low."""
LOW = {Hidden.NEVER, Hidden.LOW}
_SCALES = {"Mul", "Div", "Cast", "Identity", "Transpose"}


class Mask(NamedTuple):
    """A mask over scores: the node that lays it over them, what their axes run along, and which query sees which key.

    ``seen`` is a bool array (queries, keys), ``hidden`` what stands elsewhere.
    """

    node: ir.Node
    queries: Axis
    keys: Axis
    seen: np.ndarray[Any, Any]
    hidden: Hidden


def mask_among(nodes: Sequence[ir.Node], axes: Axes, elements: Elements) -> Mask | None:
    """The first mask that is always the same, and shows each query something, but not everything.

    One that hides by finite numbers has to be the first: others make what is seen as low as what is hidden.
    """
    for node in nodes:
        result = node.outputs[0]
        queries, keys = (axes.of(result, axis) for axis in (ROWS, COLUMNS))
        laid = _laid(node, elements) if queries and keys and queries != keys else None
        if queries and keys and laid:
            scores, every, hidden = laid
            sizes = (sizes_of(result) or [])[-2:]
            seen = np.broadcast_to(every.any(axis=tuple(range(every.ndim - 2))), sizes)
            is_first = hidden is not Hidden.LOW or is_scaled_product(scores)
            if every.any(axis=-1).all() and not seen.all() and is_first:
                return Mask(node, queries, keys, seen, hidden)
    return None


def _laid(node: ir.Node, elements: Elements) -> tuple[ir.Value | None, np.ndarray[Any, Any], Hidden] | None:
    """The scores that a node lays a mask over, where it leaves them, and what it makes of the rest."""
    if node.op_type == "Add":
        for bias, scores in (node.inputs, reversed(node.inputs)):
            added = elements(bias) if bias is not None else None
            if added is not None and added.ndim:
                is_low = added <= np.float64(LOWEST)
                is_never = bool((added[is_low] == -np.inf).all())
                return scores, ~is_low, Hidden.NEVER if is_never else Hidden.LOW
    if node.op_type == "Where" and node.inputs[0] is not None:
        condition, (chosen, other) = elements(node.inputs[0]), node.inputs[1:]
        if condition is not None and condition.ndim and (hidden := hidden_by(other)):
            return chosen, condition, hidden
        if condition is not None and condition.ndim and (hidden := hidden_by(chosen)):
            return other, ~condition, hidden
    return None


def hidden_by(value: ir.Value | None) -> Hidden | None:
    """What one number leaves of the scores whose place it takes; None where it hides nothing, or is not always the
    same."""
    constant = known_number(value)
    if constant == -math.inf:
        return Hidden.NEVER
    if constant is not None and constant <= LOWEST:
        return Hidden.LOW
    return Hidden.ZERO if constant == 0 else None


def is_scaled_product(scores: ir.Value | None) -> bool:
    """Whether nothing has been laid over scores yet: they are a matrix product, times constant numbers."""
    made = scores.producer() if scores is not None else None
    if made is None or made.op_type not in _SCALES:
        return made is not None and is_product(made)
    return all(known_number(factor) is not None for factor in made.inputs[1:]) and is_scaled_product(made.inputs[0])


def why_it_matters(nodes: Sequence[ir.Node], axes: Axes, mask: Mask) -> str | None:
    """What is computed of elements that ``mask`` hides; None where nothing else would change without them."""
    known: dict[ir.Value | None, Hidden | None] = {}
    for node in nodes:
        given = [known.get(value) or hidden_by(value) for value in node.inputs]
        if node is mask.node:
            known[node.outputs[0]] = mask.hidden
        elif _joins_nothing_else(node, axes, mask, given):
            known[node.outputs[0]] = _result(node, axes, mask, given)
        else:
            return f"{node.op_type} joins queries or keys, and what is hidden from them is not known to be nothing"
    return None


def _joins_nothing_else(node: ir.Node, axes: Axes, mask: Mask, given: Sequence[Hidden | None]) -> bool:
    """Whether what is hidden adds nothing to the sums, or the largest elements, that a node computes along its
    operands."""
    if node.op_type in REDUCTIONS:
        along = axes.of_operand(node, 0, COLUMNS)
        is_nothing = given[0] is Hidden.ZERO if node.op_type == "ReduceSum" else given[0] in LOW
        return along != mask.queries and (along != mask.keys or is_nothing)
    if is_product(node):
        along = axes.of_operand(node, 0, turned(node, "transA")[1])
        others = {axes.of(node.outputs[0], ROWS), axes.of(node.outputs[0], COLUMNS)}
        is_masked = along == mask.keys or (along == mask.queries and mask.keys in others)
        return not is_masked or _is_zero(given)
    return True


def _is_zero(factors: Sequence[Hidden | None]) -> bool:
    """Whether a product is 0: of 0 with what may be -inf it is NaN."""
    return Hidden.ZERO in factors and LOW.isdisjoint(factors)


def _result(node: ir.Node, axes: Axes, mask: Mask, given: Sequence[Hidden | None]) -> Hidden | None:
    """What a node makes of hidden elements of which ``given`` is known."""
    first, last = given[0], given[-1]
    match node.op_type:
        case "Exp" | "Softmax":
            result = Hidden.ZERO if first in LOW else None
        case "Mul":
            result = Hidden.ZERO if _is_zero(given) else None
        case "Div":
            result = first if first is Hidden.ZERO is not last else None
        case "Neg":
            result = first if first is Hidden.ZERO else None
        case "Add" | "Sub" if first in LOW:
            result = first if _shifts_rows(node, axes, mask, first) else None
        case "Add" | "Sub":
            result = first if first is last else None
        case "Where":
            result = last if given[1] is last is not Hidden.LOW else None
        case "Identity" | "Transpose":
            result = first
        case "Cast":
            result = first if _is_floating(node.inputs[0]) and _is_floating(node.outputs[0]) else None
        case _:
            result = None
    return result


def _shifts_rows(node: ir.Node, axes: Axes, mask: Mask, low: Hidden | None) -> bool:
    """Whether what is added to low scores leaves them low beside others of their row."""
    shift = node.inputs[1]
    if mask.keys not in {axes.of_operand(node, 1, axis) for axis in (ROWS, COLUMNS)}:
        return True
    is_given = shift is not None and ((made := shift.producer()) is None or made.graph is not node.graph)
    return node.op_type == "Add" and low is Hidden.NEVER and is_given


def _is_floating(value: ir.Value | None) -> bool:
    return value is not None and value.dtype is not None and value.dtype.is_floating_point()
