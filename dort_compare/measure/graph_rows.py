"""A run of a graph, executed every way and measured: its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from dort_compare.align import values_of_fx_nodes
from dort_compare.align.provenance import OnnxValue
from dort_compare.measure.judging import Judge
from dort_compare.measure.rows import Row
from dort_compare.provenance import described
from dort_compare.trace import GraphRun
from dort_compare.trace.executions import MEMORY, Executed, executions

Watch = Callable[[Executed, torch.dtype | None, Row], None]
"""Is shown every value as it passes, with the coarsest dtype that it went through and its row."""


def graph_rows(
    run: GraphRun,
    memory: int = MEMORY,
    repeats: int = 1,
    watches: Sequence[Watch] = (),
    fused: Mapping[str, OnnxValue] | None = None,
) -> Iterator[Row]:
    """A row for every value of the graph: torch's kernels and float64 against ONNX Runtime, in order of execution.

    ``memory`` bounds the MiB of torch's values that are compared at a time; with ``repeats`` of more than 1 the ONNX
    nodes run so often on the same operands, and a value that changes is named. ``fused`` gives, by FX node, the values
    of a model in which nodes of several FX nodes may have become one.
    """
    stands = values_of_fx_nodes(run.onnx_model) if fused is None else fused
    names = {fx_node: value.name for fx_node, value in stands.items()}
    merged = frozenset(fx_node for fx_node, value in stands.items() if value.fused)
    opaque = frozenset(fx_node for fx_node, value in stands.items() if value.opaque)
    held = {n: getattr(torch, value.held_in) for n, value in stands.items() if value.held_in and fused is not None}
    judge = Judge(run.phase, run.index, held)

    def row(executed: Executed) -> Row:
        node = executed.step.node
        try:
            found = judge.row(executed, stands.get(node.name))
            for watch in watches:
                watch(executed, judge.precisions[node], found)
        except Exception as problem:
            problem.add_note(f"at {described(node)}")
            raise
        return found

    # map lets go of a value once it is judged
    try:
        yield from map(row, executions(run, names, opaque, memory, repeats, merged, held))
    except Exception as problem:
        problem.add_note(f"of {run.phase} graph {run.index}")
        raise
