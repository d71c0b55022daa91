"""What rules ask of a graph."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from dort_compare import provenance


def number(value: ir.Value | None) -> float | None:
    """The number that a constant of no dimension holds; None for everything else."""
    constant = value.const_value if value is not None else None
    return float(constant.numpy()) if constant is not None and not constant.shape.rank() else None


def is_read_once(value: ir.Value) -> bool:
    """Whether nothing but one input of one node would miss the value."""
    return len(value.uses()) == 1 and not value.is_graph_output()


def only_reader(value: ir.Value, op_type: str) -> ir.Node | None:
    """The node of that type that alone reads the value; None where others do, or the graph returns it."""
    readers = {use.node for use in value.uses()}
    reader = readers.pop() if len(readers) == 1 and not value.is_graph_output() else None
    return reader if reader is not None and reader.op_type == op_type else None


def fx_nodes_of(nodes: Sequence[ir.Node]) -> str:
    """What the metadata say of a node that computes what ``nodes`` did: the FX nodes of all."""
    names = (name for node in nodes for name in node.metadata_props.get(provenance.FX_NODE, "").split())
    return " ".join(dict.fromkeys(names))
