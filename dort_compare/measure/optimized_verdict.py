"""Agree or diverge, and where, with what departs in the optimized models alone."""

from __future__ import annotations

from dataclasses import replace

from dort_compare.measure.divergence import Divergence, Judgement, at_row, in_run
from dort_compare.measure.found import Values, Whole
from dort_compare.measure.observer import Observed
from dort_compare.measure.optimized import Optimized, astray, made_for
from dort_compare.measure.reach import Lineage
from dort_compare.measure.rows import Row
from dort_compare.measure.verdict import judge


def unexplained(values: Values, found: Whole) -> frozenset[int]:
    """The graphs to be looked at as ONNX Runtime runs them, for no op of theirs says why a result departs.

    Those of which the program that ran departs from the exposed model; and where an output or gradient departs and
    nothing is the cause, those with a value that is not torch's.
    """
    rows = values.rows
    graphs = {seen.graph for seen in values.observed if not seen.ok} - {row.graph for row in rows if row.is_unstable}
    if not _has_cause(values, found) and any(not row.ok for row in found.outputs if row.backend == "debug"):
        graphs |= {row.graph for row in rows if row.status == "inherits"}
    return frozenset(graphs)


def judge_with_optimized(
    values: Values, found: Whole, lineage: Lineage, fallbacks: int
) -> tuple[Judgement, tuple[Divergence, ...]]:
    """``judge``, with what departs in the optimized models alone, or between the program that ran and those exposed.

    These stand behind the ops that depart by themselves, and before what departs without any that does.
    """
    rows = values.rows
    verdict, causes = judge(rows, found.outputs, lineage, found.departure, fallbacks)
    optimized = values.optimized or Optimized((), 0)
    departing = astray(rows, optimized.rows)
    further = [_in_optimized(row, optimized, lineage) for row in departing]
    explained = {row.graph for row in rows if row.is_unstable} | {row.graph for row in departing}
    unseen = {seen.graph: seen for seen in reversed(values.observed) if not seen.ok and seen.graph not in explained}
    compared = {row.graph for row in optimized.rows}
    named = {(cause.graph, cause.fx_node): cause for cause in reversed(further)}
    further = [*reversed(named.values()), *(_unseen(seen, seen.graph in compared) for seen in unseen.values())]
    if not further:
        return verdict, causes
    if _has_cause(values, found):
        return "diverge", (*causes, *further)
    return "diverge", (*further, *(cause for cause in causes if (cause.graph, cause.fx_node) not in named))


def _has_cause(values: Values, found: Whole) -> bool:
    """Whether a call of the lowered graphs, or what is before ONNX, departs by itself."""
    return bool(values.causes) or found.departure is not None


def _in_optimized(row: Row, optimized: Optimized, lineage: Lineage) -> Divergence:
    """The cause that ``row`` is, or that with the optimizers off, which go over more, if it departs so too."""
    where = "only in the optimized model"
    calls = made_for(row)
    without = next((each for each in optimized.unoptimized if each.graph == row.graph and each.call in calls), None)
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
    reason = in_run(seen.run) + reason
    return Divergence(phase=seen.phase, fx_node=seen.output, onnx_value=seen.output, reason=reason, run=seen.run)
