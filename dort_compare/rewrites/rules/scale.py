"""A product with one number, behind matrix products or before them, becomes their ``alpha``.

ONNX Runtime's MatMulScaleFusion does so where nothing lies between; in attention a Reshape does, and the product of all
scores with a number costs a pass over them.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from dort_compare import provenance
from dort_compare.rewrites.graph import FUSED_MATMUL, fx_nodes_of, is_product, is_read_once, number

_FAR = 2.0**12
_MOVES = {"Reshape", "Identity"}


def scale_into_matmul(model: ir.Model, node: ir.Node) -> str | None:
    """Takes the Mul ``node`` out of the graph; returns why not, where it stays."""
    x, factor = _scaled(node)
    if x is None or factor is None:
        return "it does not multiply with one constant number"
    if x.dtype != ir.DataType.FLOAT:
        return f"alpha is a float32, the values are {x.dtype}"
    return _behind(model, node, x, factor) and _before(model, node, x, factor)


def _behind(model: ir.Model, node: ir.Node, x: ir.Value, factor: float) -> str | None:
    """``(a @ b) * factor``, shapes changed in between."""
    moves, value = [], x
    while (made := value.producer()) is not None and made.op_type in _MOVES and is_read_once(value):
        moves.append(made)
        value = _input(made)
    if made is None or not is_product(made):
        return "no matrix product stands before it"
    if not is_read_once(value):
        return "the matrix product is read unscaled too"
    if reason := _too_far(made, factor):
        return reason
    nodes = [made, *reversed(moves), node]
    _set_alpha(model, made, factor, nodes)
    result, last = node.outputs[0], nodes[-2].outputs[0]
    for each in nodes[:-2]:
        each.outputs[0].name = f"{each.outputs[0].name}.scaled"
        each.outputs[0].metadata_props.clear()
    last.name, result.name = str(result.name), f"{result.name}.before"
    last.metadata_props.clear()
    last.metadata_props.update(result.metadata_props)
    result.replace_all_uses_with(last, replace_graph_outputs=True)
    model.graph.remove(node, safe=True)
    return None


def _before(model: ir.Model, node: ir.Node, x: ir.Value, factor: float) -> str | None:
    """``(x * factor) @ b`` in every matrix product that reads it, shapes changed in between."""
    result = node.outputs[0]
    moves, value = [], result
    while is_read_once(value) and (reader := next(iter(value.consumers()))).op_type in _MOVES:
        moves.append(reader)
        value = reader.outputs[0]
    products = [use.node for use in value.uses()]
    if value.is_graph_output() or not products or not all(map(is_product, products)):
        return "it is read by more than matrix products"
    factors = {each: factor ** sum(operand is value for operand in each.inputs) for each in products}
    if reason := next(filter(None, map(_too_far, factors, factors.values())), None):
        return reason
    for product, times in factors.items():
        _set_alpha(model, product, times, [node, *moves, product])
    for each in moves:
        each.outputs[0].name = f"{each.outputs[0].name}.unscaled"
        each.outputs[0].metadata_props.clear()
    result.replace_all_uses_with(x)
    model.graph.remove(node, safe=True)
    return None


def _scaled(node: ir.Node) -> tuple[ir.Value | None, float | None]:
    """What is multiplied, and by which number."""
    for value, other in (node.inputs, reversed(node.inputs)):
        if (factor := number(other)) is not None and value is not None:
            return value, factor
    return None, None


def _input(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    assert value is not None
    return value


def _alpha(product: ir.Node) -> float:
    return product.attributes["alpha"].as_float() if "alpha" in product.attributes else 1.0


def _too_far(product: ir.Node, factor: float) -> str | None:
    """Why ``factor`` may not become a part of a product's ``alpha``; None where it may."""
    alpha = _alpha(product) * factor
    if 1 / _FAR <= abs(factor) <= _FAR and 1 / _FAR <= abs(alpha) <= _FAR:
        return None
    return f"{alpha:.3g} is so far from 1 that a product could leave the range of float32 before it"


def _set_alpha(model: ir.Model, product: ir.Node, factor: float, nodes: Sequence[ir.Node]) -> None:
    product.domain, product.op_type = FUSED_MATMUL
    product.version = None
    product.attributes["alpha"] = ir.AttrFloat32("alpha", _alpha(product) * factor)
    product.metadata_props[provenance.FX_NODE] = fx_nodes_of(nodes)
    model.graph.opset_imports[FUSED_MATMUL[0]] = 1
