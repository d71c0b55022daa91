"""Tables, numbers and shapes as plain text."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from dort_compare.measure.distance.distances import Distance, Number
from dort_compare.plain import readable


def new_table(*columns: str) -> Table:
    """A table without borders whose cells are never cut."""
    table = _Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ignore")
    return table


class _Table(Table):
    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(readable(cell) for cell in cells), **options)


def rendered(renderable: Any) -> str:
    """What rich would print, as plain text as wide as it needs."""
    out = io.StringIO()
    console = Console(file=out, width=10_000, color_system=None, legacy_windows=False, markup=False, emoji=False)
    console.print(renderable)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def shape_text(shape: Sequence[int]) -> str:
    """2x3 for (2, 3)."""
    return "x".join(map(str, shape)) or "scalar"


def number(value: Number | None) -> str:
    """Three digits; nothing where there is no number."""
    return "" if value is None else "0" if value == 0 else f"{value:.2e}"


def max_abs(distance: Distance | None) -> str:
    """The largest deviation, or in its place what was found, in short: "14 inf in ONNX"."""
    if distance is None:
        return "not on both sides"
    if distance.finding is None:
        return number(distance.max_abs)
    return "; ".join(each.split(" where ")[0] for each in distance.finding.split("; "))
