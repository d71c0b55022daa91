"""A run of a graph, executed every way and measured: its rows."""

from __future__ import annotations

from collections.abc import Iterator

from dort_compare.align import values_of_fx_nodes
from dort_compare.measure.judging import Judge
from dort_compare.measure.rows import Row
from dort_compare.trace import GraphRun
from dort_compare.trace.executions import MEMORY, Executed, executions


def graph_rows(run: GraphRun, memory: int = MEMORY, repeats: int = 1) -> Iterator[Row]:
    """A row for every value of the graph: torch's kernels and float64 against ONNX Runtime, in order of execution.

    ``memory`` bounds the bytes of torch's values that are compared at a time; with ``repeats`` of more than 1 the ONNX
    nodes run so often on the same operands, and a value that changes is named.
    """
    stands = values_of_fx_nodes(run.onnx_model)
    names = {fx_node: value.name for fx_node, value in stands.items()}
    opaque = frozenset(fx_node for fx_node, value in stands.items() if value.opaque)
    judge = Judge(run.phase, run.index)

    def row(executed: Executed) -> Row:
        return judge.row(executed, stands.get(executed.step.node.name))

    yield from map(row, executions(run, names, opaque, memory, repeats))  # map lets go of a step once it is judged
