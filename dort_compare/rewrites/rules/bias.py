"""A mask that all turns of a Scan lay over their scores by Where, as numbers that they add: ONNX Runtime's Where goes
through the scores three times, Add once, and the numbers are made once for all turns.

A finite number has to be the first that is laid over scores: one that is added to another like it is -inf, or twice as
low, and so no more like the rest of a row that is hidden whole, of which torch makes the mean.

What is hidden and not finite makes NaN of its row, as in torch where attention is given a mask; not so in torch where a
model fills the scores itself, or where causality is all there is to hide.
"""

from __future__ import annotations

import onnx_ir as ir

from dort_compare.rewrites.graph import sizes_of, typed
from dort_compare.rewrites.hidden import LOW, Hidden, hidden_by, is_scaled_product
from dort_compare.rewrites.writer import Replacement


def mask_into_bias(model: ir.Model, node: ir.Node) -> str | None:
    """Lets numbers be added where a Where puts a low one in the place of scores; returns why there is none."""
    body = node.attributes["body"].as_graph()
    masks = [each for each in body if _hides(each) and each.inputs[0] not in body.inputs]
    for mask in masks:
        _replace(model.graph, node, body, mask)
    return None if masks else "no mask that its turns share puts a low number in the place of scores before others do"


def _hides(node: ir.Node) -> bool:
    """Whether a node chooses, by what its graph does not make, between what it is given and a low number."""
    condition, *chosen = node.inputs if node.op_type == "Where" else [None]
    if condition is None or sizes_of(condition) is None:
        return False
    made = condition.producer()
    is_given = made is None or made.graph is not node.graph
    hidden = [hidden_by(value) for value in chosen]
    if not is_given or [each in LOW for each in hidden].count(True) != 1:
        return False
    scores = chosen[1 if hidden[0] in LOW else 0]
    return Hidden.NEVER in hidden or is_scaled_product(scores)


def _replace(graph: ir.Graph, scan: ir.Node, body: ir.Graph, mask: ir.Node) -> None:
    condition, *chosen = mask.inputs
    result = mask.outputs[0]
    assert condition is not None
    above, within = Replacement([mask], "bias"), Replacement([mask], "biased")
    zero = above.write("Constant", value=ir.tensor(0, result.dtype))
    numbers = (value if hidden_by(value) in LOW else zero for value in chosen)
    bias = typed(above.write("Where", condition, *numbers), sizes_of(condition) or [], result)
    graph.insert_before(scan, above.nodes)
    biased = within.write("Add", next(value for value in chosen if hidden_by(value) not in LOW), bias)
    within.finish(body, biased)
