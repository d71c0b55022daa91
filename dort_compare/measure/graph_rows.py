"""A run of a graph, executed every way and measured: its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dort_compare.align import values_of_fx_nodes
from dort_compare.align.provenance import OnnxValue
from dort_compare.measure.judging import Judge
from dort_compare.measure.observer import Observer
from dort_compare.measure.rows import Row
from dort_compare.trace import GraphRun
from dort_compare.trace.executions import MEMORY, executions


def graph_rows(
    run: GraphRun,
    memory: int = MEMORY,
    repeats: int = 1,
    observer: Observer | None = None,
    fused: Mapping[str, OnnxValue] | None = None,
) -> Iterator[Row]:
    """A row for every value of the graph: torch's kernels and float64 against ONNX Runtime, in order of execution.

    ``memory`` bounds the MiB of torch's values that are compared at a time; with ``repeats`` of more than 1 the ONNX
    nodes run so often on the same operands, and a value that changes is named. ``observer`` is shown every value.
    ``fused`` gives, by FX node, the values of a model in which nodes of several FX nodes may have become one.
    """
    stands = values_of_fx_nodes(run.onnx_model) if fused is None else fused
    names = {fx_node: value.name for fx_node, value in stands.items()}
    opaque = frozenset(fx_node for fx_node, value in stands.items() if value.opaque)
    judge = Judge(run.phase, run.index)
    for executed in executions(run, names, opaque, memory, repeats, is_fused=fused is not None):
        value = stands.get(executed.step.node.name)
        row = judge.row(executed, value)
        if observer is not None and value is not None:
            observer.see(executed, value.name, judge.precisions[executed.step.node])
        yield row
