"""Agree or diverge, and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dort_compare.measure.distance.distances import Distance
from dort_compare.measure.divergence import Divergence, Judgement, at_row, float64_has, outside
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.reach import Lineage
from dort_compare.measure.rows import Row

Named = Mapping[tuple[int, str], Row]
"""The rows by graph and FX node."""


def judge(
    rows: Sequence[Row],
    outcome: Sequence[OutcomeRow],
    lineage: Lineage | None = None,
    departure: Divergence | None = None,
    fallbacks: int = 0,
) -> tuple[Judgement, tuple[Divergence, ...]]:
    """The verdict over all values of all graphs and over the outputs and gradients of the whole model, and its causes.

    A cause is a call whose own result departs; there may be several. Those whose values change from run to run come
    first, then the others in order of execution, then ``departure``, the one before ONNX. Calls that depart and share
    ONNX nodes, as in a model of which few values stand for the graph's, are one cause, at the first of them.
    Without any, an output or gradient that departs is laid at the first value that is more than noise apart, and is the
    cause itself where there is none. Where there is no ``outcome``, as of a dump, one that has NaN or inf on one side
    alone departs, and so do one that a value leads to which departs although it reads the same, one that no ONNX value
    stands for, and one that its model does not return.
    A comparison in which nothing was compared diverges: silence proves nothing, and equal outputs do not speak for
    graphs of which no value was compared, nor for those of which all calls, so many ``fallbacks``, ran in eager torch.
    Nor does NaN alone, which any other operation makes of NaN, or what is empty. Graphs that compute nothing, as of a
    dump, or, beside others, nothing but values that torch leaves unset, leave nothing to compare.
    """
    astray: dict[tuple[int, str], Row] = {}
    for row in rows:
        if row.status == "diverges":
            astray.setdefault((row.graph, row.call), row)
    before_onnx = () if departure is None else (departure,)
    if astray or before_onnx:
        in_order = sorted(astray.values(), key=lambda row: not row.is_unstable)
        return "diverge", (*(_of_all(group, lineage) for group in _by_shared_nodes(in_order)), *before_onnx)
    result = _of_results(rows, outcome, lineage)
    if result is not None:
        return "diverge", (result,)
    if fallbacks and not rows:
        return "diverge", (outside("", "nothing was compared: all that was compiled ran in eager torch"),)
    found = [row.inherited for row in rows] if rows else [row.distance for row in outcome]
    if not any(map(_has_numbers, found)):
        return "diverge", (outside("", f"nothing was compared{_without_numbers(found)}"),)
    silent = {row.graph for row in rows if not _is_unset(row)} - {row.graph for row in rows if row.inherited}
    if silent and not outcome:
        return "diverge", (outside("", f"nothing was compared of graph {min(silent)}"),)
    absent = None if lineage is None or outcome else _absent_result(rows, lineage)
    return ("agree", ()) if absent is None else ("diverge", (absent,))


def _by_shared_nodes(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows in groups, of which the first in each shares an ONNX node with every other."""
    groups: list[list[Row]] = []
    group_of: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        nodes = [(row.graph, name) for name in row.onnx_nodes]
        group = next((group_of[node] for node in nodes if node in group_of), None)
        if group is None:
            group = []
            groups.append(group)
            group_of.update(dict.fromkeys(nodes, group))
        group.append(row)
    return groups


def _of_all(rows: Sequence[Row], lineage: Lineage | None) -> Divergence:
    """The cause that the first row is, with what the others say of it."""
    cause, others = at_row(rows[0], lineage), rows[1:]
    if not others:
        return cause
    shared = [name for name in cause.onnx_nodes if all(name in row.onnx_nodes for row in others)]
    names, nodes = ", ".join(row.call for row in others), f": {', '.join(shared)}" if shared else ""
    too = f"{names} {'depart' if len(others) > 1 else 'departs'} too, made by some of the same ONNX nodes{nodes}"
    reach = lineage.reached(cause.graph, *(row.call for row in rows)) if lineage and cause.graph is not None else None
    return replace(cause, reason=f"{cause.reason}; {too}", reach=reach)


def _is_unset(row: Row) -> bool:
    """Whether a value is none of torch's numbers, although an ONNX value stands for it."""
    return row.status == "unaligned" and row.onnx_value is not None


def _has_numbers(distance: Distance | None) -> bool:
    return distance is not None and distance.numbers != 0


def _without_numbers(found: Iterable[Distance | None]) -> str:
    """Why what was measured is none; "" where nothing was measured."""
    return ": all that was measured is empty or NaN; other inputs may tell" if any(found) else ""


def _of_results(rows: Sequence[Row], outcome: Sequence[OutcomeRow], lineage: Lineage | None) -> Divergence | None:
    """Where an output or gradient departs although every op is right; None where none does."""
    inheriting = [row for row in rows if row.status == "inherits" and row.inherited is not None]
    wrong = next((row for row in outcome if not row.ok), None)
    if wrong is not None:
        what = f"{wrong.kind} {wrong.name}"
        if wrong.backend == "debug" and wrong.distance is not None and wrong.distance.different is not None:
            enlarging = next((row for row in inheriting if row.local and _may_reach(row, wrong, lineage)), None)
            if enlarging is not None:
                return _enlarged(enlarging, f"{what} departs", lineage, rows)
            if lineage is not None and (made := _made_there(rows, wrong, lineage)):
                return made
        return outside(what, _outcome_reason(wrong))
    return None if lineage is None or outcome else _of_results_alone(rows, inheriting, lineage)


def _of_results_alone(rows: Sequence[Row], inheriting: Sequence[Row], lineage: Lineage) -> Divergence | None:
    """The same where only the graphs tell, of which a result may lie anywhere by noise that is enlarged: one departs
    where it has NaN or inf on one side alone, or what it is made of departs although it reads the same."""
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


def _absent_result(rows: Sequence[Row], lineage: Lineage) -> Divergence | None:
    """The first output or gradient that no ONNX value stands for, nor for what it is a view of, else the first result
    that the model of a graph does not return; None where there is none."""
    there = {(row.graph, row.fx_node) for row in rows if row.onnx_value is not None}
    for row in rows:
        if row.onnx_value is not None or not lineage.is_result(row.graph, row.fx_node):
            continue
        if any((row.graph, name) not in there for name in lineage.shown(row.graph, row.fx_node)):
            cause = at_row(row, lineage)
            return replace(cause, reason=f"{cause.reason}; output or gradient {row.fx_node} is not compared")
    unreturned = {(graph, name) for graph in {row.graph for row in rows} for name in lineage.unreturned(graph)}
    absent = next((row for row in rows if (row.graph, row.fx_node) in unreturned), None)
    if absent is None:
        return None
    return replace(at_row(absent, lineage), reason=f"the ONNX model does not return {absent.fx_node}")


def _may_reach(row: Row, wrong: OutcomeRow, lineage: Lineage | None) -> bool:
    """Whether an output or update, or else a gradient, depends on a value, as far as the graphs say."""
    if lineage is None:
        return True
    reach = lineage.reached(row.graph, row.call)
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
