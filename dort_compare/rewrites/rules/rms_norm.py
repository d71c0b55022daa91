"""Root mean square normalization, six nodes of pointwise arithmetic, becomes ONNX Runtime's one kernel for it.

ONNX Runtime's own fusion looks for Pow and Div, where torch's graphs have a product and a reciprocal root. The kernel
gives the reciprocal root too, which a forward graph keeps for its backward graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from dort_compare import provenance
from dort_compare.rewrites.graph import fx_nodes_of, is_over_last, number, only_reader, take_place

_KERNEL = "SimplifiedLayerNormalization"


def rms_norm(model: ir.Model, node: ir.Node) -> str | None:
    """Takes ``x * (1 / sqrt(mean(x * x) + epsilon)) * weight`` together at its ReduceMean; returns why not."""
    square = _square(node)
    x = square.inputs[0] if square is not None else None
    if square is None or x is None or x.shape is None:
        return "it is no mean of squares"
    if x.dtype != ir.DataType.FLOAT:
        return f"the kernel is used for float32, the values are {x.dtype}"
    if not is_over_last(node, x.shape.rank()):
        return "the mean is not over the last axis alone"
    root = _reciprocal_root(node.outputs[0])
    if isinstance(root, str):
        return root
    epsilon, nodes = root
    ends = _weighted(x, nodes[-1].outputs[0])
    if isinstance(ends, str):
        return ends
    weight, products = ends
    _replace(model, [square, node, *nodes, *products], [x, weight], epsilon)
    return None


def _square(mean: ir.Node) -> ir.Node | None:
    value = mean.inputs[0]
    made = value.producer() if value is not None else None
    if made is None or value is None or made.op_type != "Mul" or made.inputs[0] is not made.inputs[1]:
        return None
    return made if only_reader(value, "ReduceMean") is mean else None


def _reciprocal_root(mean: ir.Value) -> tuple[float, list[ir.Node]] | str:
    """The number and the nodes of ``1 / sqrt(mean + number)``."""
    shifted = only_reader(mean, "Add")
    epsilons = [found for value in shifted.inputs if (found := number(value)) is not None] if shifted else []
    if shifted is None or not epsilons:
        return "no constant is added to the mean"
    rooted = only_reader(shifted.outputs[0], "Sqrt")
    inverse = only_reader(rooted.outputs[0], "Reciprocal") if rooted else None
    if rooted is None or inverse is None:
        return "no reciprocal root is taken of it"
    return epsilons[0], [shifted, rooted, inverse]


def _weighted(x: ir.Value, inverse: ir.Value) -> tuple[ir.Value, list[ir.Node]] | str:
    """The weight and the nodes of ``x * inverse * weight``."""
    products = (use.node for use in inverse.uses() if use.node.op_type == "Mul")
    scaled = next((product for product in products if {*product.inputs} == {x, inverse}), None)
    weighted = only_reader(scaled.outputs[0], "Mul") if scaled else None
    if scaled is None or weighted is None:
        return "the values are not multiplied with the reciprocal root and then, only, with a weight"
    weight = next((value for value in weighted.inputs if value is not scaled.outputs[0]), None)
    if weight is None or weight.shape is None or x.shape is None or list(weight.shape) != [x.shape[-1]]:
        return "the weight is not one number for each element of the last axis"
    return weight, [scaled, weighted]


def _replace(model: ir.Model, nodes: Sequence[ir.Node], inputs: Sequence[ir.Value], epsilon: float) -> None:
    inverse, _, weighted = nodes[-3:]
    results = (weighted.outputs[0], inverse.outputs[0])
    attributes = [ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", epsilon)]
    metadata = {**weighted.metadata_props, provenance.FX_NODE: fx_nodes_of(nodes)}
    made = ir.Node("", _KERNEL, inputs, attributes, num_outputs=2, name=weighted.name, metadata_props=metadata)
    model.graph.insert_before(weighted, made)
    for result, new in zip(results, made.outputs, strict=True):
        take_place(new, result)
    model.graph.remove(reversed(nodes), safe=True)
