"""What a comparison says of modules, as text."""

from __future__ import annotations

from collections.abc import Sequence

from dort_compare.measure.before_onnx.modules import ModuleRow, alignment
from dort_compare.measure.rollup import by_module
from dort_compare.measure.rows import Row
from dort_compare.report.tables import new_table, number, rendered
from dort_compare.report.wording import tally

_FEW = 5


def before_onnx_text(rows: Sequence[ModuleRow]) -> str:
    """How many results of modules and gradients agree with plain eager before ONNX, and why others do not."""
    counted = tally(row.status for row in rows)
    reasons = "; ".join(f"{count} {reason}" for reason, count in alignment(rows).items())
    return f"before ONNX, results of modules and their gradients: {counted}" + (f" ({reasons})" if reasons else "")


def modules_table(rows: Sequence[Row], limit: int = _FEW) -> str:
    """The modules that add most, in noise floors, in the order of the model; all of them where ``limit`` is 0."""
    found = by_module(rows)
    worst = sorted(found, key=lambda each: (-each.diverging, -(each.worst or 0)))[: limit or None]
    table = new_table("module", "values", "diverge", "inherit", "worst local error")
    for each in found:
        if each in worst:
            name = each.module or "(model)"
            table.add_row(name, str(each.values), str(each.diverging), str(each.inheriting), number(each.worst))
    return rendered(table)
