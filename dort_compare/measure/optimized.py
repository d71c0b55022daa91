"""The optimized model: what ONNX Runtime's optimizers made of a graph's model, value by value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from dort_compare.align.optimized import align_optimized
from dort_compare.measure.divergence import Divergence, Judgement, at_row
from dort_compare.measure.graph_rows import Watch, graph_rows
from dort_compare.measure.observer import Observed
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.reach import Lineage
from dort_compare.measure.rows import Row
from dort_compare.measure.verdict import judge
from dort_compare.rewrites import rewritten
from dort_compare.runtime.providers import SessionSettings
from dort_compare.trace import GraphRun
from dort_compare.trace.as_it_is import AS_IT_IS
from dort_compare.trace.onnx import optimized as optimized_model


@dataclass(frozen=True)
class Optimized:
    """A row for every value that survived the optimizers, and how many did not: a fusion went over them.

    ``unoptimized`` holds, where one of the rows diverges that does not in the lowered model, those that diverge with
    all optimizers off too.
    """

    rows: tuple[Row, ...]
    fused_away: int
    unoptimized: tuple[Row, ...] = ()

    def __add__(self, other: Optimized) -> Optimized:
        return Optimized(
            self.rows + other.rows, self.fused_away + other.fused_away, self.unoptimized + other.unoptimized
        )

    def to_json(self) -> dict[str, Any]:
        return {"rows": [row.to_json() for row in self.rows], "fused_away": self.fused_away}


def _rows_under(
    run: GraphRun,
    settings: SessionSettings,
    memory: int,
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
    aligned = align_optimized(run.onnx_model, optimized_model(model, settings, run.providers))
    rows = graph_rows(replace(run, onnx_model=aligned.model), memory, 1, watches, aligned.values)
    return Optimized(tuple(row for row in rows if row.onnx_value is not None), len(aligned.fused_away))


def optimized_rows(
    run: GraphRun,
    lowered: Iterable[Row],
    settings: SessionSettings,
    memory: int,
    watches: Sequence[Watch],
    rewrites: bool,
) -> Optimized:
    """The rows of the optimized model of ``run``, and those with the optimizers off where one departs that is right
    among the ``lowered``.

    ONNX Runtime changes a model for kernels that it lacks even then: a rounding may go that way.
    """
    found = _rows_under(run, settings, memory, watches, rewrites)
    if not _astray(lowered, found.rows):
        return found
    without = _rows_under(run, AS_IT_IS, memory)
    return replace(found, unoptimized=tuple(row for row in without.rows if row.status == "diverges"))


def unexplained(
    rows: Sequence[Row],
    outcome: Sequence[OutcomeRow],
    observed: Sequence[Observed],
    departure: Divergence | None,
) -> frozenset[int]:
    """The graphs to be looked at as ONNX Runtime runs them, for no op of theirs says why a result departs.

    Those of which the program that ran departs from the exposed model; and where an output or gradient departs and
    nothing is the cause, those with a value that is not torch's.
    """
    found = {seen.graph for seen in observed if not seen.ok} - {row.graph for row in rows if row.is_unstable}
    has_cause = departure is not None or any(row.status == "diverges" for row in rows)
    if not has_cause and any(not row.ok for row in outcome if row.backend == "debug"):
        found |= {row.graph for row in rows if row.status == "inherits"}
    return frozenset(found)


def judge_with_optimized(
    rows: Sequence[Row],
    outcome: Sequence[OutcomeRow],
    lineage: Lineage,
    departure: Divergence | None,
    optimized: Optimized | None,
    observed: Sequence[Observed],
    fallbacks: int,
) -> tuple[Judgement, tuple[Divergence, ...]]:
    """``judge``, with what departs in the optimized models alone, or between the program that ran and those exposed.

    These stand behind the ops that depart by themselves, and before what departs without any that does.
    """
    verdict, causes = judge(rows, outcome, lineage, departure, fallbacks)
    optimized = optimized or Optimized((), 0)
    astray = _astray(rows, optimized.rows)
    further = [_in_optimized(row, optimized, lineage) for row in astray]
    explained = {row.graph for row in rows if row.is_unstable} | {row.graph for row in astray}
    unseen = {seen.graph: seen for seen in reversed(observed) if not seen.ok and seen.graph not in explained}
    compared = {row.graph for row in optimized.rows}
    named = {(cause.graph, cause.fx_node): cause for cause in reversed(further)}
    further = [*reversed(named.values()), *(_unseen(seen, seen.graph in compared) for seen in unseen.values())]
    if not further:
        return verdict, causes
    if departure is not None or any(row.status == "diverges" for row in rows):
        return "diverge", (*causes, *further)
    return "diverge", (*further, *(cause for cause in causes if (cause.graph, cause.fx_node) not in named))


def _astray(rows: Iterable[Row], optimized: Iterable[Row]) -> list[Row]:
    """The first of the ``optimized`` rows of each call that diverges, where nothing it was made for does in
    ``rows``."""
    departing = {(row.graph, name) for row in rows if row.status == "diverges" for name in (row.call, row.fx_node)}
    astray: dict[tuple[int, str], Row] = {}
    for row in optimized:
        if row.status == "diverges" and not any((row.graph, name) in departing for name in _made_for(row)):
            astray.setdefault((row.graph, row.call), row)
    return list(astray.values())


def _made_for(row: Row) -> tuple[str, ...]:
    return (row.call, row.fx_node, *row.fused)


def _in_optimized(row: Row, optimized: Optimized, lineage: Lineage) -> Divergence:
    """The cause that ``row`` is, or that with the optimizers off, which go over more, if it departs so too."""
    where = "only in the optimized model"
    made_for = _made_for(row)
    without = next((each for each in optimized.unoptimized if each.graph == row.graph and each.call in made_for), None)
    if without is not None:
        row, where = without, "only in what ONNX Runtime makes of the model, with all optimizers off too"
    cause = at_row(row, lineage)
    made = f"{', '.join(row.op_types)} in place of FX {', '.join(row.fused)}" if row.fused else ", ".join(row.op_types)
    return replace(cause, reason=f"{where}: {made}: {cause.reason}")


def _unseen(seen: Observed, is_compared: bool) -> Divergence:
    """Where the program that ran departs and no op does, in its optimized model neither if that ``is_compared``."""
    found = seen.distance.finding or f"{seen.distance.max_abs:.3g} where {seen.noise_floor:.3g} is noise"
    alone = ", though no op of the optimized model departs by itself" if is_compared else ""
    reason = (
        f"the program that ran departs from its {seen.execution} model whose values were exposed: {found}{alone}; "
        f"dort-compare bisect says whether an optimizer does it"
    )
    return Divergence(phase=seen.phase, fx_node=seen.output, onnx_value=seen.output, reason=reason)
