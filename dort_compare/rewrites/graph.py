"""What rules ask of a graph."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from dort_compare import provenance

FUSED_MATMUL = ("com.microsoft", "FusedMatMul")
"""ONNX Runtime's kernel for ``alpha * (a @ b)``: domain and op type."""
ELEMENTWISE = {"Add", "Sub", "Mul", "Div", "Exp", "Log", "Neg", "Equal", "And", "Or", "Not", "IsNaN", "Where", "Cast",
               "Identity"}  # fmt: skip
"""Operators of attention that compute each element of their result from one of each operand."""


def number(value: ir.Value | None) -> float | None:
    """The number that a constant of no dimension holds; None for everything else."""
    constant = value.const_value if value is not None else None
    return float(constant.numpy()) if constant is not None and not constant.shape.rank() else None


def sizes_of(value: ir.Value | None) -> list[int] | None:
    """The sizes of a value; None where not all are known."""
    sizes = [*value.shape] if value is not None and value.shape is not None else [None]
    return [size for size in sizes if isinstance(size, int)] if all(isinstance(size, int) for size in sizes) else None


def is_read_once(value: ir.Value) -> bool:
    """Whether nothing but one input of one node would miss the value."""
    return len(value.uses()) == 1 and not value.is_graph_output()


def readers(value: ir.Value, *op_types: str) -> list[ir.Node] | None:
    """The nodes of those types, in their order, that alone read the value; None where others do, or the graph returns
    it."""
    found = {use.node.op_type: use.node for use in value.uses()}
    if value.is_graph_output() or found.keys() != {*op_types} or len({use.node for use in value.uses()}) > len(found):
        return None
    return [found[op_type] for op_type in op_types]


def only_reader(value: ir.Value, op_type: str) -> ir.Node | None:
    """The node of that type that alone reads the value; None where others do, or the graph returns it."""
    found = readers(value, op_type)
    return found[0] if found else None


def is_product(node: ir.Node) -> bool:
    """Whether a node multiplies matrices, and maybe the products with a number."""
    return (node.domain, node.op_type) in {("", "MatMul"), FUSED_MATMUL}


def holds_graphs(node: ir.Node) -> bool:
    """Whether a node has graphs among its attributes."""
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return any(attribute.type in kinds for attribute in node.attributes.values())


def turns_matrices(node: ir.Node) -> bool:
    """Whether a node exchanges the last two axes of its operand, and no others."""
    if node.op_type != "Transpose":
        return False
    rank = len(sizes_of(node.inputs[0]) or [])
    order = node.attributes["perm"].as_ints() if "perm" in node.attributes else range(rank)[::-1]
    return rank > 1 and [*order] == [*range(rank - 2), rank - 1, rank - 2]


def is_over_last(reduction: ir.Node, rank: int) -> bool:
    """Whether a reduction is over the last axis alone, which stays with size 1."""
    axes = reduction.inputs[1].const_value if len(reduction.inputs) > 1 and reduction.inputs[1] is not None else None
    keeps = "keepdims" not in reduction.attributes or reduction.attributes["keepdims"].as_int() == 1
    return keeps and axes is not None and [int(axis) % rank for axis in axes.numpy().ravel()] == [rank - 1]


def fx_nodes_of(nodes: Sequence[ir.Node]) -> str:
    """What the metadata say of a node that computes what ``nodes`` did: the FX nodes of all."""
    names = (name for node in nodes for name in node.metadata_props.get(provenance.FX_NODE, "").split())
    return " ".join(dict.fromkeys(names))


def typed(value: ir.Value, sizes: Sequence[int], like: ir.Value) -> ir.Value:
    """The value, which has those sizes now, and the dtype of ``like``."""
    value.shape, value.type = ir.Shape(sizes), like.type
    return value


def take_place(new: ir.Value, old: ir.Value) -> None:
    """Lets ``new`` be all that ``old`` is to readers, graph outputs and metadata; ``old`` gets another name."""
    new.shape, new.type, new.name = old.shape, old.type, old.name
    new.metadata_props.update(old.metadata_props)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name = f"{old.name}.before"
