"""The report as text, for a terminal or a log: the verdict, then the few rows that matter, or all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dort_compare.backends.fallback import grouped
from dort_compare.backends.recorded_runs import ComparedGraph
from dort_compare.measure.observer import Observed
from dort_compare.measure.rows import Row
from dort_compare.plain import printable
from dort_compare.report.causes import BETWEEN_GRAPHS, verdict_lines
from dort_compare.report.half import precision_lines, suggestion_lines
from dort_compare.report.modules import before_onnx_text, modules_table
from dort_compare.report.outcomes import furthest_table, outcome_table
from dort_compare.report.report import Report
from dort_compare.report.tables import max_abs, new_table, number, rendered, shape_text
from dort_compare.report.wording import counted, tally, wrapped

_CAUSES, _FURTHEST, _ROWS = 3, 5, 8


def report_text(report: Report, *, everything: bool = False) -> str:
    """The verdict with its causes, the outputs and gradients furthest from eager, the modules that add most and a few
    of the values that are not ok, in 80 columns where names allow; with ``everything`` every row, as wide as it is."""
    sections = [
        [*verdict_lines(report, None if everything else _CAUSES)],
        [_outcome_text(report, everything)] if report.outputs else [],
        [line if everything else wrapped(line) for line in _summary(report)],
        [modules_table(report.rows, 0 if everything else _FURTHEST)] if any(row.module for row in report.rows) else [],
        _values_text(report.rows, everything),
        _values_text(report.optimized.rows, everything) if report.optimized else [],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def half_lines(report: Report) -> list[str]:
    """What there is to say of half precision, and what to keep in float32 where that was asked for."""
    suggested = suggestion_lines(report.suggestion) if report.suggestion else []
    return [printable(line) for line in precision_lines(report.precision) + suggested]


def optimized_and_observed_lines(report: Report) -> list[str]:
    """What became of the values in the optimized models, and whether exposing values changed the outputs."""
    lines = []
    if report.optimized:
        values = tally(row.status for row in report.optimized.rows)
        fused = sum(bool(row.fused) for row in report.optimized.rows)
        lines.append(f"optimized: {values}; {fused} of them by other nodes, {report.optimized.fused_away} fused away")
    if report.observed:
        lines.append(f"observer: exposing values changed {_changed(report.observed)}")
    return lines


def _outcome_text(report: Report, everything: bool) -> str:
    return outcome_table(report.outputs) if everything else furthest_table(report.outputs, _FURTHEST)


def _summary(report: Report) -> Iterator[str]:
    """How many values there are of each kind, in the order of the stages."""
    yield f"values: {tally(row.status for row in report.rows)}"
    computed = sum(row.computed_in is not None for row in report.rows)
    if computed:
        yield f"{computed} of them computed in float32 and rounded back to their own dtype"
    held = Counter(row.held_in for row in report.rows if row.held_in)
    for dtype, n in held.items():
        yield f"{n} of them held in {dtype} by the model, and judged by what that rounds"
    numberless = sum(row.inherited is not None and row.inherited.numbers == 0 for row in report.rows)
    if numberless:
        yield f"{numberless} of them empty, or NaN throughout on one side or both: no number was compared"
    yield from optimized_and_observed_lines(report)
    yield from half_lines(report)
    if report.fallbacks:
        yield f"ran in eager torch, not in ONNX Runtime, and not compared: {counted(len(report.fallbacks), 'node')}"
        yield from grouped(report.fallbacks).splitlines()
    if report.graph_breaks:
        yield f"graph breaks: {len(report.graph_breaks)}; {BETWEEN_GRAPHS}"
        yield from (printable(f"  {reason}") for reason in dict.fromkeys(report.graph_breaks))
    yield from (_runs_left(graph) for graph in report.graphs if graph.ran > graph.compared)
    if report.modules:
        yield before_onnx_text(report.modules)


def _runs_left(graph: ComparedGraph) -> str:
    """That only the first runs of a graph were compared, and why."""
    why = f"max_runs={graph.ran} compares all"
    if graph.compared < graph.recorded:
        why = "an input of the next was written in place since"
    were = f"{counted(graph.compared, 'run')} {'was' if graph.compared == 1 else 'were'}"
    return f"{graph.phase} graph {graph.index} ran {graph.ran} times: its first {were} compared; {why}"


def _values_text(rows: Sequence[Row], everything: bool) -> list[str]:
    """The values that are not ok, those that diverge first; with ``everything`` all, in order."""
    shown = rows if everything else sorted(filter(_is_astray, rows), key=lambda row: row.status != "diverges")
    if not shown:
        return []
    table = _wide_table(shown) if everything else _narrow_table(shown[:_ROWS])
    left = len(shown) - _ROWS
    more = f"and {left} more that are not ok; --all, or report.text(everything=True), shows them"
    return [table] if everything or left <= 0 else [table, more]


def _is_astray(row: Row) -> bool:
    return row.status != "ok"


def _narrow_table(rows: Sequence[Row]) -> str:
    table = new_table("status", "phase", "fx node", "inherited", "local", "floor")
    for row in rows:
        cells = (row.status, row.phase, row.fx_node, row.reason or max_abs(row.inherited))
        table.add_row(*cells, max_abs(row.local) if row.local else "", number(row.noise_floor))
    return rendered(table)


def _wide_table(rows: Sequence[Row]) -> str:
    measured = ("inherited", "local", "floor", "torch/f64", "onnx/f64")
    table = new_table("status", "phase", "fx node", "target", "dtype", "shape", *measured, "module", "source", "fused")
    for row in rows:
        cells = (row.status, row.phase, row.fx_node, row.target, row.dtype, shape_text(row.shape))
        found = (row.reason or max_abs(row.inherited), max_abs(row.local) if row.local else "")
        errors = (number(row.noise_floor), number(row.torch_vs_float64), number(row.onnx_vs_float64))
        table.add_row(*cells, *found, *errors, row.module, row.source, " ".join(row.fused))
    return rendered(table)


def _changed(observed: Sequence[Observed]) -> str:
    """How many outputs, each counted once, whichever execution it differs from."""
    changed = [seen for seen in observed if not seen.distance.equal]
    total, different = (len({(seen.graph, seen.output) for seen in some}) for some in (observed, changed))
    if not changed:
        return f"none of {counted(total, 'output')}"
    worst = next((seen for seen in changed if not seen.ok), None)
    if worst is None:
        return f"{different} of {counted(total, 'output')}, none by more than noise"
    run = f", run {worst.run}" if worst.run > 1 else ""
    where = f"{worst.output} of {worst.phase} graph {worst.graph}{run}, {worst.execution}, by {max_abs(worst.distance)}"
    return f"{different} of {counted(total, 'output')}, {where} where {number(worst.noise_floor)} is noise"
