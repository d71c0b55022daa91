"""What got better and worse between two reports, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dort_compare.measure.changes import Changed, counted
from dort_compare.plain import printable
from dort_compare.report.tables import new_table, number, rendered

_SHOWN = 30
_WORDS = {"worse": "worse", "better": "better", "new": "new", "gone": "gone", "same": "the same"}


def changes_text(old: Mapping[str, Any], new: Mapping[str, Any], found: Sequence[Changed]) -> str:
    """Both verdicts, the counts, and what got worse and better, the worst first."""
    counts = counted(found)
    told = [f"{counts[change]} {word}" for change, word in _WORDS.items() if counts.get(change)]
    lines = [
        printable(f"old: {summary(old)}"),
        printable(f"new: {summary(new)}"),
        f"values, outputs and gradients: {', '.join(told) or 'none'}",
    ]
    for change in ("worse", "better"):
        some = sorted((each for each in found if each.change == change), key=_how_much, reverse=True)
        if some:
            lines += ["", _table(change, some[:_SHOWN])]
        if len(some) > _SHOWN:
            lines.append(f"and {len(some) - _SHOWN} more that got {change}; --html FILE shows them")
    return "\n".join(lines)


def summary(report: Mapping[str, Any]) -> str:
    """The verdict of a report that was read, in one line."""
    return str(report.get("summary") or report["verdict"])


def _how_much(each: Changed) -> float:
    return max(each.old_error or 0.0, each.new_error or 0.0)


def _table(change: str, some: Sequence[Changed]) -> str:
    table = new_table(change, "where", "name", "op", "status", "error, in noise floors", "source")
    for each in some:
        status = each.old_status if each.old_status == each.new_status else f"{each.old_status} -> {each.new_status}"
        errors = f"{number(each.old_error) or '-'} -> {number(each.new_error) or '-'}"
        table.add_row(each.what, each.where, each.name, each.target, status, errors, each.source)
    return rendered(table)
