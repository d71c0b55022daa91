"""The model that is shipped: what ONNX Runtime's optimizers made of a graph's model, value by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from dort_compare.align.optimized import align_optimized
from dort_compare.measure.graph_rows import Watch, graph_rows
from dort_compare.measure.observer import Observed
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.reach import Dataflow
from dort_compare.measure.rows import Row
from dort_compare.measure.verdict import Divergence, Judgement, at_row, judge
from dort_compare.rewrites import rewritten
from dort_compare.runtime.providers import SessionSettings
from dort_compare.trace import GraphRun
from dort_compare.trace.executions import MEMORY
from dort_compare.trace.onnx import optimized


@dataclass(frozen=True)
class Optimized:
    """A row for every value that survived the optimizers, and how many did not: a fusion went over them."""

    rows: tuple[Row, ...]
    fused_away: int

    def __add__(self, other: Optimized) -> Optimized:
        return Optimized(self.rows + other.rows, self.fused_away + other.fused_away)

    def to_json(self) -> dict[str, Any]:
        return {"rows": [row.to_json() for row in self.rows], "fused_away": self.fused_away}


def optimized_rows(
    run: GraphRun,
    settings: SessionSettings,
    memory: int = MEMORY,
    watches: Sequence[Watch] = (),
    rewrites: bool = False,
) -> Optimized:
    """The rows of ``run`` with the model that ONNX Runtime, under ``settings``, makes of that of the run.

    With ``rewrites`` those of ``dort_compare.rewrites`` come first.

    Nodes that were fused run on torch's values of what they read, and are held against the chain of FX nodes that they
    took the place of, which may round in between or not. Raises ExecutionError where ONNX Runtime cannot.
    """
    model = run.onnx_model
    if rewrites:
        model = ir.to_proto(rewritten(ir.from_proto(model), run.providers))
    aligned = align_optimized(run.onnx_model, optimized(model, settings, run.providers))
    rows = graph_rows(replace(run, onnx_model=aligned.model), memory, 1, watches, aligned.values)
    return Optimized(tuple(row for row in rows if row.onnx_value is not None), len(aligned.fused_away))


def judge_shipped(
    rows: Sequence[Row],
    outcome: Sequence[OutcomeRow],
    dataflow: Dataflow | None = None,
    departure: Divergence | None = None,
    shipped: Optimized | None = None,
    observed: Sequence[Observed] = (),
) -> tuple[Judgement, tuple[Divergence, ...]]:
    """``judge``, with what departs in the optimized models alone, or between the program that ran and those exposed.

    These stand behind the ops that depart by themselves, and before what departs without any that does.
    """
    verdict, causes = judge(rows, outcome, dataflow, departure)
    departing = {(row.graph, name) for row in rows if row.status == "diverges" for name in (row.call, row.fx_node)}
    astray: dict[tuple[int, str], Row] = {}
    for row in shipped.rows if shipped else ():
        if row.status == "diverges" and not any((row.graph, name) in departing for name in _made_for(row)):
            astray.setdefault((row.graph, row.call), row)
    explained = {row.graph for row in rows if row.is_unstable} | {graph for graph, _ in astray}
    unseen = {seen.graph: seen for seen in reversed(observed) if not seen.ok and seen.graph not in explained}
    further = [_in_optimized(row, dataflow) for row in astray.values()] + [_unseen(seen) for seen in unseen.values()]
    if not further:
        return verdict, causes
    are_ops = bool(departing) or departure is not None
    return "diverge", (*causes, *further) if are_ops else (*further, *causes)


def _made_for(row: Row) -> tuple[str, ...]:
    return (row.call, row.fx_node, *row.fused)


def _in_optimized(row: Row, dataflow: Dataflow | None) -> Divergence:
    cause = at_row(row, dataflow)
    made = f"{', '.join(row.op_types)} in place of FX {', '.join(row.fused)}" if row.fused else ", ".join(row.op_types)
    return replace(cause, reason=f"only in the optimized model: {made}: {cause.reason}")


def _unseen(seen: Observed) -> Divergence:
    found = seen.distance.finding or f"{seen.distance.max_abs:.3g} where {seen.noise_floor:.3g} is noise"
    reason = (
        f"the program that ran departs from its {seen.execution} model whose values were exposed: {found}; "
        f"dort-compare bisect finds the optimizer that does it"
    )
    return Divergence(seen.phase, seen.output, "", seen.output, (), "", "", reason)
