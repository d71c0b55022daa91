"""Attention's softmax, nine nodes of which five pass over all scores, becomes ONNX Runtime's one kernel for it.

Torch's fused attention gives 0 to a query that sees no key, as all its scores are -inf; Softmax gives it NaN. Which
queries those are is read off the mask, which is smaller than the scores. An infinite query, whose products with all
keys are -inf, is not among them: there the result is NaN. Those that see no key get 0 also where values are not finite,
which times 0 are NaN in torch. Graphs that return the logarithm of the sum, for their backward graph, keep the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from dort_compare.rewrites.graph import is_over_last, is_product, number, only_reader, readers
from dort_compare.rewrites.writer import Replacement

_DTYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def softmax(model: ir.Model, node: ir.Node) -> str | None:
    """Takes ``exp(x - max(x)) / sum(exp(x - max(x))) @ values`` together at its ReduceMax; returns why not."""
    scores = node.inputs[0]
    if scores is None or not _rank(scores) or scores.dtype not in _DTYPES:
        return "these are no scores of float32 or float64"
    if not is_over_last(node, _rank(scores)):
        return "the maximum is not over the last axis alone"
    nodes = _nodes(scores, node)
    if isinstance(nodes, str):
        return nodes
    mask = _mask(scores)
    if isinstance(mask, str):
        return mask
    _replace(model, scores, [node, *nodes], mask)
    return None


def _nodes(scores: ir.Value, peak: ir.Node) -> list[ir.Node] | str:
    """The nodes behind the maximum, down to the product of the probabilities."""
    shift = _unless(peak.outputs[0], -math.inf, 0)
    shifted = only_reader(shift[1].outputs[0], "Sub") if shift else None
    if not shift or not shifted or [*shifted.inputs] != [scores, shift[1].outputs[0]]:
        return "the maximum, 0 where it is -inf, is not subtracted from the scores and read by nothing else"
    weights = only_reader(shifted.outputs[0], "Exp")
    uses = readers(weights.outputs[0], "ReduceSum", "Div") if weights else None
    if not weights or not uses or not is_over_last(uses[0], _rank(scores)):
        return "the exponentials are not summed and divided by, and read by nothing else"
    total, quotient = uses
    divisor = _unless(total.outputs[0], 0, 1)
    if not divisor or [*quotient.inputs] != [weights.outputs[0], divisor[1].outputs[0]]:
        return "the sum, 1 where it is 0, is not what the exponentials are divided by"
    probabilities = quotient.outputs[0]
    product = only_reader(probabilities, "MatMul") if only_reader(divisor[1].outputs[0], "Div") else None
    values = product.inputs[1] if product and product.inputs[0] is probabilities else None
    if not product or values is None or values is probabilities or _rank(values) != _rank(scores):
        return "the probabilities are not multiplied with values, or they or their divisor are read elsewhere"
    return [*shift, shifted, weights, total, *divisor, quotient, product]


def _unless(value: ir.Value, what: float, instead: float) -> list[ir.Node] | None:
    """The nodes of ``where(value == what, instead, value)``, if nothing else reads the value."""
    found = readers(value, "Equal", "Where")
    if not found or only_reader(found[0].outputs[0], "Where") is not found[1]:
        return None
    (one, other), (condition, replaced, kept) = found[0].inputs, found[1].inputs
    is_it = one is value and number(other) == what and number(replaced) == instead
    return found if is_it and kept is value and condition is found[0].outputs[0] else None


def _mask(scores: ir.Value) -> tuple[str, ir.Value] | str | None:
    """What hides keys: "Add" with what is added to the products, "Where" with where they are kept; None: nothing."""
    made = scores.producer()
    if _is_product(scores):
        return None
    if made is not None and made.op_type == "Add":
        product, bias = made.inputs
        if product is not None and _is_product(product) and bias is not None and _rank(bias):
            return "Add", bias
    if made is not None and made.op_type == "Where":
        seen, product, hidden = made.inputs
        is_hidden = product is not None and _is_product(product) and number(hidden) == -math.inf
        if is_hidden and seen is not None and _rank(seen):
            return "Where", seen
    return "the scores are no product of matrices, with or without a mask"


def _rank(value: ir.Value) -> int:
    """0 where it is not known."""
    return value.shape.rank() if value.shape is not None else 0


def _is_product(value: ir.Value) -> bool:
    """Of matrices, whether or not a number is multiplied in."""
    made = value.producer()
    if made is not None and made.op_type == "Mul":
        product, factor = made.inputs
        is_number = factor is not None and factor.shape is not None and not factor.shape.rank()
        made = product.producer() if is_number and product is not None else None
    return made is not None and is_product(made)


def _replace(model: ir.Model, scores: ir.Value, nodes: Sequence[ir.Node], mask: tuple[str, ir.Value] | None) -> None:
    new = Replacement(nodes, "softmax")
    write = new.write
    dtype = scores.dtype
    assert dtype is not None
    probabilities = write("Softmax", scores, axis=-1)
    final = write("MatMul", probabilities, nodes[-1].inputs[1])
    for value, like in ((probabilities, scores), (final, nodes[-1].outputs[0])):
        value.shape = like.shape.copy() if like.shape is not None else None
    probabilities.type = final.type = scores.type
    if mask is not None:
        kind, value = mask
        last, zero = (write("Constant", value=each) for each in (ir.tensor([-1]), ir.tensor(0, dtype)))
        hidden = write("Constant", value=ir.tensor(-math.inf, dtype))
        if kind == "Where":
            value, hidden = write("Cast", value, to=dtype), zero
        # of NaN behind -inf the maximum is -inf in ONNX Runtime, but not the sum
        is_all, is_sum = (write("Equal", write(by, value, last), hidden) for by in ("ReduceMax", "ReduceSum"))
        final = write("Where", write("And", is_all, is_sum), zero, final)
    new.finish(model.graph, final)
