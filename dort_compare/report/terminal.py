"""The report as text, for a terminal or a log."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from dort_compare.backends.fallback import grouped
from dort_compare.measure.metrics import Distance, Number
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.reach import Reach
from dort_compare.measure.verdict import Divergence
from dort_compare.report.half import precision_lines, suggestion_lines
from dort_compare.report.report import Report


def verdict_line(report: Report) -> str:
    """The verdict in one line."""
    compared = sum(row.inherited is not None for row in report.rows)
    left = len(report.rows) - compared
    first = report.first_divergence
    if first is None:
        values = f"{compared} values" + (f" ({left} more not compared)" if left else "")
        if report.fallbacks:
            values += f" ({len(report.fallbacks)} nodes ran in eager torch)"
        return f"agree: {values} and {len(report.outputs)} outputs and gradients, none beyond its noise floor"
    others = f" (and {len(report.causes) - 1} more)" if len(report.causes) > 1 else ""
    return f"diverge{others}: {cause_text(first)}"


def cause_text(cause: Divergence) -> str:
    """A cause in one line: what departs, where, by how much, who is further from float64, and what it reaches."""
    place = " at ".join(part for part in (cause.module and f"in module {cause.module}", cause.source) if part)
    what = f"{cause.phase} {cause.fx_node}" + (f" ({cause.target})" if cause.target else "")
    return f"{what}{' ' + place if place else ''}: {cause.reason}{_reach_text(cause.reach)}"


def _reach_text(reach: Reach | None) -> str:
    if reach is None:
        return ""
    parts = [f"{len(names)} {kind}s" for names, kind in ((reach.outputs, "output"), (reach.gradients, "gradient"))]
    return f"; it reaches {reach.values - 1} later values, {parts[0]} and {parts[1]}"


def report_text(report: Report) -> str:
    """The verdict, the outputs and gradients, and the values that are not ok."""
    lines = [verdict_line(report), *(f"also: {cause_text(cause)}" for cause in report.causes[1:])]
    lines += ["", outcome_table(report.outputs)]
    statuses = Counter(row.status for row in report.rows)
    lines.append("values: " + ", ".join(f"{n} {status}" for status, n in statuses.items()))
    computed = sum(row.computed_in is not None for row in report.rows)
    if computed:
        lines.append(f"{computed} of them computed in float32 and rounded back to their own dtype")
    lines += half_lines(report)
    if report.fallbacks:
        lines.append(f"ran in eager torch, not in ONNX Runtime, and not compared: {len(report.fallbacks)} nodes")
        lines.append(grouped(report.fallbacks))
    astray = [row for row in report.rows if row.status != "ok"]
    if astray:
        table = new_table("status", "phase", "fx node", "target", "dtype", "shape", "max_abs", "floor", "source")
        for row in astray:
            cells = (row.status, row.phase, row.fx_node, row.target, row.dtype, shape_text(row.shape))
            table.add_row(*cells, row.reason or max_abs(row.inherited), number(row.noise_floor), row.source)
        lines += ["", rendered(table)]
    return "\n".join(lines)


def half_lines(report: Report) -> list[str]:
    """What there is to say of half precision, and what to keep in float32 where that was asked for."""
    return precision_lines(report.precision) + (suggestion_lines(report.suggestion) if report.suggestion else [])


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


def new_table(*columns: str) -> Table:
    """A table without borders whose cells are never cut."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ignore")
    return table


def rendered(renderable: Any) -> str:
    """What rich would print, as plain text as wide as it needs."""
    out = io.StringIO()
    console = Console(file=out, width=10_000, color_system=None, legacy_windows=False)
    console.print(renderable)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def shape_text(shape: Sequence[int]) -> str:
    """2x3 for (2, 3)."""
    return "x".join(map(str, shape)) or "scalar"


def number(value: Number | None) -> str:
    """Three digits; nothing where there is no number."""
    return "" if value is None else "0" if value == 0 else f"{value:.2e}"


def max_abs(distance: Distance | None) -> str:
    """The largest deviation, or the finding that takes its place."""
    if distance is None:
        return "not on both sides"
    return distance.finding or number(distance.max_abs)
