"""A run of a graph, executed every way and measured: its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import fx

from dort_compare.align import values_of_fx_nodes
from dort_compare.align.provenance import OnnxValue
from dort_compare.errors import DortError
from dort_compare.measure.judging import Judge
from dort_compare.measure.rows import Row
from dort_compare.problems import out_of_memory
from dort_compare.provenance import described
from dort_compare.trace import GraphRun
from dort_compare.trace.four_executions import MEMORY, Executed, executions
from dort_compare.trace.stand_ins import StandIns

Watch = Callable[[Executed, torch.dtype | None, Row], None]
"""Is shown every value as it passes, with the coarsest dtype that it went through and its row."""


def graph_rows(
    run: GraphRun,
    *,
    stands: Mapping[str, OnnxValue] | None = None,
    may_be_converted: bool = False,
    memory: int = MEMORY,
    repeats: int = 1,
    watches: Sequence[Watch] = (),
    is_behind: bool = False,
) -> Iterator[Row]:
    """A row for every value of the graph: torch's kernels and float64 against ONNX Runtime, in order of execution.

    ``stands`` gives, by FX node, the values of a model in which nodes of several FX nodes may have become one; None
    where the metadata of each say enough. One that ``may_be_converted`` may hold values in coarser dtypes, as these
    say.

    ``memory`` bounds the MiB of torch's values that are compared at a time; with ``repeats`` of more than 1 the ONNX
    nodes run so often on the same operands, and a value that changes is named. ``is_behind`` says that a graph before
    departs: what it has handed on may be of a shape that torch does not take, which ends the rows with one that says
    so.
    """
    values = values_of_fx_nodes(run.onnx_model) if stands is None else stands
    stand_ins = _stand_ins(values, may_be_converted=may_be_converted)
    judge = Judge(run, stand_ins.held)

    def row(executed: Executed) -> Row:
        node = executed.step.node
        try:
            found = judge.row(executed, values.get(node.name))
            for watch in watches:
                watch(executed, judge.precisions[node], found)
        except Exception as problem:
            problem.add_note(f"at {described(node)}")
            raise
        return found

    seen: set[str] = set()
    try:
        # map lets go of a value once it is judged
        for found in map(row, executions(run, stand_ins, memory, repeats)):
            seen.add(found.fx_node)
            yield found
            del found
    except Exception as problem:
        if is_behind and _is_of_torch(problem) and (rest := _rest(run, seen)):
            yield judge.not_run(rest[0])
            return
        problem.add_note(f"of {run.phase} graph {run.index}")
        raise


def _stand_ins(stands: Mapping[str, OnnxValue], *, may_be_converted: bool) -> StandIns:
    """What executions have to know of the values of a model; as we lower it, it holds none in a coarser dtype."""
    return StandIns(
        {fx_node: value.name for fx_node, value in stands.items()},
        opaque=frozenset(fx_node for fx_node, value in stands.items() if value.opaque),
        merged=frozenset(fx_node for fx_node, value in stands.items() if value.fused),
        held={n: getattr(torch, value.held_in) for n, value in stands.items() if value.held_in and may_be_converted},
    )


def _is_of_torch(problem: Exception) -> bool:
    """Whether it is what torch's kernels raise of operands that they do not take."""
    if out_of_memory(problem) or isinstance(problem, (DortError, NotImplementedError)):
        return False
    return isinstance(problem, RuntimeError)


def _rest(run: GraphRun, seen: set[str]) -> list[fx.Node]:
    """The calls that make tensors and have no row yet."""
    calls = (node for node in run.graph_module.graph.nodes if node.op == "call_function" and node.name not in seen)
    return [node for node in calls if isinstance(node.meta.get("val"), torch.Tensor)]
