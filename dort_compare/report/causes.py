"""The verdict and its causes, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dort_compare.measure.divergence import Divergence
from dort_compare.measure.reach import Reach
from dort_compare.measure.rows import Row
from dort_compare.plain import printable
from dort_compare.report.wording import FEW, counted, few, wrapped

if TYPE_CHECKING:
    from dort_compare.report.report import Report

BETWEEN_GRAPHS = "what runs between graphs is eager torch, and not compared"
_BEYOND = "and what is computed of that outside of its graph"


def verdict_line(report: Report) -> str:
    """The verdict in one line."""
    if report.first_divergence is None:
        return _agreement(report)
    return f"{_head(report)}: {cause_text(report.first_divergence)}"


def cause_text(cause: Divergence) -> str:
    """A cause in one line: what departs, where, by how much, who is further from float64, and what it reaches."""
    if not cause.fx_node:
        return cause.reason
    return printable(f"{_what(cause)}{_where(cause)}: {cause.reason}{_reach_text(cause.reach)}")


def verdict_lines(report: Report, limit: int | None = None) -> Iterator[str]:
    """The verdict, and for each cause lines of at most 80 characters where words allow: how far it departs, what it
    reads and what it reaches. ``limit`` bounds the causes."""
    if not report.causes:
        yield wrapped(_agreement(report))
    for number, cause in enumerate(report.causes[:limit]):
        yield wrapped(printable(f"also: {_what(cause)}" if number else f"{_head(report)}: {_what(cause)}"))
        yield from (wrapped(printable(f"  {line}")) for line in _details(cause, report.rows))
    left = len(report.causes) - (limit or len(report.causes))
    if left > 0:
        yield f"and {left} more; --all, or report.text(everything=True), shows them"


def _agreement(report: Report) -> str:
    compared = sum(row.inherited is not None for row in report.rows)
    left = len(report.rows) - compared
    values = counted(compared, "value") + (f" ({left} more not compared)" if left else "")
    if report.fallbacks:
        values += f" ({counted(len(report.fallbacks), 'node')} ran in eager torch)"
    if report.outputs:
        *others, last = dict.fromkeys(row.kind for row in report.outputs)
        kinds = f"{'s, '.join(others)}s and {last}" if others else last
        values += f" and {counted(len(report.outputs), kinds)}"
    inheriting = sum(row.status == "inherits" for row in report.rows)
    more = f" but for {inheriting} that inherit what a right operation makes of noise" if inheriting else ""
    return f"agree: {values}, none beyond its noise floor{more}"


def _head(report: Report) -> str:
    others = f" (and {len(report.causes) - 1} more)" if len(report.causes) > 1 else ""
    return f"diverge{others}"


def _what(cause: Divergence) -> str:
    """What departs: a value, or where none does, as the reason says."""
    name = f"{cause.phase} {_ends(cause.fx_node)}" if cause.fx_node else cause.reason
    return name + (f" ({cause.target})" if cause.target else "")


def _ends(nodes: str) -> str:
    """The nodes that departed together; of many, as those of a recurrent layer, the first and the last ones."""
    names = nodes.split()
    return nodes if len(names) <= FEW else " ".join([*names[: FEW // 2], "...", *names[-(FEW // 2) :]])


def _where(cause: Divergence) -> str:
    module = f" in module {cause.module}" if cause.module else ""
    return module + (f" at {cause.source}" if cause.source else "")


def _details(cause: Divergence, rows: Sequence[Row]) -> Iterator[str]:
    if where := _where(cause).strip():
        yield where
    if cause.fx_node:
        yield cause.reason
    if cause.operands:
        statuses = {row.fx_node: row.status for row in rows if row.graph == cause.graph}
        read = [f"{name} ({statuses.get(name, 'given')})" for name in cause.operands]
        yield f"reads {few(read)}"
    if cause.onnx_nodes:
        fused = next((row.fused for row in rows if (row.graph, row.call) == (cause.graph, cause.fx_node)), ())
        yield f"made by {few(cause.onnx_nodes)}" + (f" in place of FX {few(fused)}" if fused else "")
    if cause.reach is not None:
        outputs, gradients = cause.reach.outputs, cause.reach.gradients
        named = [f"{what} {few(names)}" for what, names in (("outputs", outputs), ("gradients", gradients)) if names]
        beyond = [_BEYOND] if cause.reach.beyond else []
        yield "; ".join([f"reaches {counted(cause.reach.values - 1, 'later value')}", *named, *beyond])


def _reach_text(reach: Reach | None) -> str:
    if reach is None:
        return ""
    later = f"; it reaches {counted(reach.values - 1, 'later value')}"
    if reach.beyond and not (reach.outputs or reach.gradients):
        return f"{later}, {_BEYOND}"
    outputs, gradients = counted(len(reach.outputs), "output"), counted(len(reach.gradients), "gradient")
    return f"{later}, {outputs} and {gradients}" + (f", {_BEYOND}" if reach.beyond else "")
