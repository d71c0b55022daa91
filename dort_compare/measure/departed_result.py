"""An output or gradient that departs although every op is right, and the value that it is laid at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dort_compare.measure.divergence import Divergence, at_row, float64_has, outside
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.reach import Lineage
from dort_compare.measure.rows import Row

Named = Mapping[tuple[int, str], Row]
"""The rows by graph and FX node."""


def departed_result(rows: Sequence[Row], outcome: Sequence[OutcomeRow], lineage: Lineage | None) -> Divergence | None:
    """Where an output or gradient departs although every op is right; None where none does. Where there is no
    ``outcome``, as of a dump, the graphs alone tell."""
    if not outcome:
        return _of_graphs_alone(rows, lineage) if lineage else None
    wrong = next((row for row in outcome if not row.ok), None)
    return _laid_at(wrong, rows, lineage) if wrong else None


def _laid_at(wrong: OutcomeRow, rows: Sequence[Row], lineage: Lineage | None) -> Divergence:
    """The first value that is more than noise apart and may reach the result, or the result itself."""
    what = f"{wrong.kind} {wrong.name}"
    if wrong.backend == "debug" and wrong.distance is not None and wrong.distance.different is not None:
        enlarging = next((row for row in _inheriting(rows) if row.local and _may_reach(row, wrong, lineage)), None)
        if enlarging is not None:
            return _enlarged(enlarging, f"{what} departs", lineage, rows)
        if lineage is not None and (made := _made_there(rows, wrong, lineage)):
            return made
    return outside(what, _outcome_reason(wrong))


def _of_graphs_alone(rows: Sequence[Row], lineage: Lineage) -> Divergence | None:
    """A result may lie anywhere by noise that is enlarged: one departs where it has NaN or inf on one side alone, or
    what it is made of departs although it reads the same."""
    inheriting = _inheriting(rows)
    results = [row for row in inheriting if lineage.is_result(row.graph, row.fx_node)]
    named = {(row.graph, row.fx_node): row for row in rows}
    for row in inheriting:
        departs = _departs_on_the_same(row, named)
        if departs or _has_finding(row):
            reached = (r for r in results if r is row or lineage.leads_to(row.graph, row.fx_node, r.fx_node))
            result = next((r for r in reached if departs or _has_finding(r)), None)
            if result is not None:
                return _enlarged(row, f"output or gradient {result.fx_node} departs", lineage, rows)
    return None


def _inheriting(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.status == "inherits" and row.inherited is not None]


def _has_finding(row: Row) -> bool:
    return bool(row.inherited and row.inherited.finding)


def _made_there(rows: Sequence[Row], wrong: OutcomeRow, lineage: Lineage) -> Divergence | None:
    """The result of the model whose own error is most of a departure, though no more than its roundings may add up to;
    None where there is none, or where NaN departs. The floor of one value allows for roundings that all go one way."""
    departure = wrong.distance.max_abs if wrong.distance else None
    if departure is None:
        return None
    for row in rows:
        is_result = row.shape == wrong.shape and lineage.may_be(row.graph, row.fx_node, wrong.kind, wrong.name)
        if is_result and row.local and (row.local.max_abs or 0) > departure / 2:
            error = f"{row.local.told('torch', 'onnx')} on the same operands"
            allowed = f"what its roundings may add up to is {row.noise_floor:.3g}"
            departs = f"{wrong.kind} {wrong.name} departs, where {wrong.noise_floor:.3g} is noise"
            return replace(at_row(row, lineage), reason=f"{error}; {allowed}, but {departs}")
    return None


def _may_reach(row: Row, wrong: OutcomeRow, lineage: Lineage | None) -> bool:
    """Whether an output or update, or else a gradient, depends on a value, as far as the graphs say."""
    if lineage is None:
        return True
    reach = lineage.reached(row.graph, row.call, run=row.run)
    return bool(reach.gradients if wrong.kind == "gradient" else reach.outputs)


def _enlarged(row: Row, what: str, lineage: Lineage | None, rows: Sequence[Row]) -> Divergence:
    """The cause that a value is which lies further apart than its operands, whose op, as far as known, is right."""
    assert row.inherited is not None
    apart = row.inherited.finding or row.inherited.told("torch", "onnx")
    why = ""
    if row.local and _reads_the_same(row, {(each.graph, each.fx_node): each for each in rows}):
        why = (
            ", though right where it runs alone on the same operands: a zero that it reads has the other sign, or "
            "behind the nodes that make these ONNX Runtime computes it otherwise (dort-compare bisect says why)"
        )
    elif row.local:
        why = ", though right on torch's operands: it enlarges what is noise beside the largest element of these"
    cause = at_row(row, lineage)
    return replace(
        cause,
        reason=f"{apart}{why}; {what}",
        torch_vs_float64=row.torch_vs_float64,
        onnx_vs_float64=row.onnx_vs_float64,
    )


def _reads_the_same(row: Row, named: Named) -> bool:
    """Whether all that a value is computed of is in ONNX Runtime what it is in torch, but for the signs of zeros."""
    read = [named[row.graph, name] for name in row.operands if (row.graph, name) in named]
    return bool(read) and all(each.inherited is not None and each.inherited.equal for each in read)


def _departs_on_the_same(row: Row, named: Named) -> bool:
    """Whether a value departs by more than its op may err, where all that it reads is the same."""
    if row.inherited is None or row.local is None:
        return False
    departs = row.inherited.finding or (row.inherited.max_abs or 0) > (row.noise_floor or 0.0)
    return bool(departs) and _reads_the_same(row, named)


def _outcome_reason(row: OutcomeRow) -> str:
    if row.distance is None:
        return "only one side has it"
    if row.distance.finding:
        return row.distance.finding + float64_has({"eager": row.torch_vs_float64, "compiled": row.onnx_vs_float64})
    gap = f"{row.distance.told('eager', 'compiled')} where {row.noise_floor:.3g} is noise"
    if row.backend != "debug":
        return f"{gap}, in the {row.backend} backend alone, whose values were not exposed"
    return (
        f"{gap}, although neither tracing nor an op of the compiled graphs departs by itself: what is noise in a value "
        "that one graph hands on, as forward to backward, is enlarged by another, or in eager torch between them, or a "
        "graph departs in a run after the first max_runs, which alone are compared"
    )
