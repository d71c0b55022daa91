"""The report as text, for a terminal or a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch

from dort_compare.backends.fallback import grouped
from dort_compare.measure.observer import Observed
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.reach import Reach
from dort_compare.measure.rows import Row
from dort_compare.measure.verdict import Divergence
from dort_compare.plain import printable
from dort_compare.report.half import precision_lines, suggestion_lines
from dort_compare.report.modules import before_onnx_text, gradients_text, modules_table
from dort_compare.report.report import Report
from dort_compare.report.tables import max_abs, new_table, number, rendered, shape_text

_FEW = 8


def verdict_line(report: Report) -> str:
    """The verdict in one line."""
    compared = sum(row.inherited is not None for row in report.rows)
    left = len(report.rows) - compared
    first = report.first_divergence
    if first is None:
        values = f"{compared} values" + (f" ({left} more not compared)" if left else "")
        if report.fallbacks:
            values += f" ({len(report.fallbacks)} nodes ran in eager torch)"
        if report.outputs:
            values += f" and {len(report.outputs)} outputs and gradients"
        return f"agree: {values}, none beyond its noise floor"
    others = f" (and {len(report.causes) - 1} more)" if len(report.causes) > 1 else ""
    return f"diverge{others}: {cause_text(first)}"


def cause_text(cause: Divergence) -> str:
    """A cause in one line: what departs, where, by how much, who is further from float64, and what it reaches."""
    return printable(f"{place_text(cause)}: {cause.reason}{_reach_text(cause.reach)}")


def place_text(cause: Divergence) -> str:
    """What departs, and where."""
    what = f"{cause.phase} {cause.fx_node}" + (f" ({cause.target})" if cause.target else "")
    module = f" in module {cause.module}" if cause.module else ""
    return what + module + (f" at {cause.source}" if cause.source else "")


def _reach_text(reach: Reach | None) -> str:
    if reach is None:
        return ""
    parts = [f"{len(names)} {kind}s" for names, kind in ((reach.outputs, "output"), (reach.gradients, "gradient"))]
    return f"; it reaches {reach.values - 1} later values, {parts[0]} and {parts[1]}"


def report_text(report: Report) -> str:
    """The verdict, the outputs and gradients, and the values that are not ok."""
    lines = [verdict_line(report), *(f"also: {cause_text(cause)}" for cause in report.causes[1:])]
    if report.outputs:
        lines += ["", outcome_table(report.outputs)]
    statuses = Counter(row.status for row in report.rows)
    lines.append("values: " + ", ".join(f"{n} {status}" for status, n in statuses.items()))
    computed = sum(row.computed_in is not None for row in report.rows)
    if computed:
        lines.append(f"{computed} of them computed in float32 and rounded back to their own dtype")
    lines += shipped_lines(report)
    lines += half_lines(report)
    if report.fallbacks:
        lines.append(f"ran in eager torch, not in ONNX Runtime, and not compared: {len(report.fallbacks)} nodes")
        lines.append(grouped(report.fallbacks))
    lines += _modules_text(report)
    lines += _astray(report.rows)
    if report.optimized:
        lines += _astray(report.optimized.rows)
    return "\n".join(lines)


def half_lines(report: Report) -> list[str]:
    """What there is to say of half precision, and what to keep in float32 where that was asked for."""
    suggested = suggestion_lines(report.suggestion) if report.suggestion else []
    return [printable(line) for line in precision_lines(report.precision) + suggested]


def _modules_text(report: Report) -> list[str]:
    lines = [before_onnx_text(report.modules)] if report.modules else []
    if any(row.kind == "gradient" for row in report.outputs):
        lines.append(gradients_text(report.outputs))
    if any(row.module for row in report.rows):
        lines += ["", modules_table(report.rows)]
    return lines


def _astray(rows: Sequence[Row]) -> list[str]:
    """The values that are not ok, but of those that only inherit no more than a few."""
    columns = (
        "status",
        "phase",
        "fx node",
        "target",
        "dtype",
        "shape",
        "inherited",
        "local",
        "floor",
        "source",
        "fused",
    )
    table = new_table(*columns)
    inheriting = 0
    for row in rows:
        inheriting += row.status == "inherits"
        if row.status == "ok" or (row.status == "inherits" and inheriting > _FEW):
            continue
        cells = (row.status, row.phase, row.fx_node, row.target, row.dtype, shape_text(row.shape))
        found = row.reason or max_abs(row.inherited)
        local = max_abs(row.local) if row.local else ""
        table.add_row(*cells, found, local, number(row.noise_floor), row.source, " ".join(row.fused))
    if not table.row_count:
        return []
    left = inheriting - _FEW
    return ["", rendered(table), *([f"and {left} more that inherit; the JSON report lists all"] if left > 0 else [])]


def shipped_lines(report: Report) -> list[str]:
    """What became of the values in the optimized models, and whether exposing values changed the outputs."""
    lines = []
    if report.optimized:
        statuses = Counter(row.status for row in report.optimized.rows)
        values = ", ".join(f"{n} {status}" for status, n in statuses.items())
        fused = sum(bool(row.fused) for row in report.optimized.rows)
        lines.append(f"optimized: {values}; {fused} of them by other nodes, {report.optimized.fused_away} fused away")
    if report.observed:
        lines.append(f"observer: exposing values changed {_changed(report.observed)}")
    return lines


def _changed(observed: Sequence[Observed]) -> str:
    """How many outputs, each counted once, whichever execution it differs from."""
    changed = [seen for seen in observed if not seen.distance.equal]
    total, different = (len({(seen.graph, seen.output) for seen in some}) for some in (observed, changed))
    if not changed:
        return f"none of {total} outputs"
    worst = next((seen for seen in changed if not seen.ok), None)
    if worst is None:
        return f"{different} of {total} outputs, none by more than noise"
    where = f"{worst.output} of {worst.phase} graph {worst.graph}, {worst.execution}, by {max_abs(worst.distance)}"
    return f"{different} of {total} outputs, {where} where {number(worst.noise_floor)} is noise"


def outcome_table(rows: Sequence[OutcomeRow]) -> str:
    """Every output and gradient with its distance from eager."""
    table = new_table("", "kind", "name", "dtype", "shape", "max_abs", "max_rel", "torch/f64", "onnx/f64")
    for row in rows:
        mark = "=" if row.distance and row.distance.equal else "~" if row.ok else "!"
        cells = (mark, row.kind, row.name, row.dtype, shape_text(row.shape), max_abs(row.distance))
        relative = number(row.distance.max_rel if row.distance else None)
        table.add_row(*cells, relative, number(row.torch_vs_float64), number(row.onnx_vs_float64))
    return rendered(table)


def tensors_table(kind: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """Name, dtype, shape and sum of tensors."""
    table = new_table("kind", "name", "dtype", "shape", "sum")
    for name, tensor in tensors.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        table.add_row(kind, name, dtype, shape_text(tensor.shape), f"{tensor.sum(dtype=torch.float64).item():.6g}")
    return rendered(table)
