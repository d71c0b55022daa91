"""A run of a graph, executed every way and measured: its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx

from dort_compare.align import values_of_fx_nodes
from dort_compare.measure.rows import Candidate, Row, measured_rows
from dort_compare.trace import GraphRun, eager_values, float64_values, onnx_values


def graph_rows(run: GraphRun) -> Iterator[Row]:
    """A row for every value of the graph: torch's kernels and float64 against ONNX Runtime, in order of execution."""
    inputs = tuple(run.inputs.values())
    seen: dict[fx.Node, Any] = {}
    return measured_rows(
        run.phase,
        run.index,
        eager_values(run.graph_module, inputs, seen),
        float64_values(run.graph_module, inputs, seen),
        _candidates(run),
        run.inputs,
    )


def _candidates(run: GraphRun) -> dict[str, Candidate | str]:
    tensors = dict(onnx_values(run.onnx_model, run.inputs, run.providers))
    return {
        fx_node: value.opaque
        or Candidate(value.name, tensors[value.name], value.nodes, value.op_types, value.computed_in)
        for fx_node, value in values_of_fx_nodes(run.onnx_model).items()
    }
