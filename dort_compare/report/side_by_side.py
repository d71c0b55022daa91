"""The values of two models as a table, one row a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dort_compare.measure.diff.side_by_side import PairedValue, PairRow
from dort_compare.report.tables import max_abs, new_table, number, rendered, shape_text


def side_by_side_table(rows: Iterable[PairRow]) -> str:
    """The rows in order, and how many there are of each mark."""
    table = new_table(
        "", "kind", "dtype", "shape", "content", "op", "name", "content", "op", "name", "max_abs", "max_rel"
    )
    marks: Counter[str] = Counter()
    for row in rows:
        marks[row.mark] += 1
        one = row.first or row.second
        assert one is not None
        cells = (row.mark, one.kind, one.dtype, shape_text(one.shape), *_cells(row.first), *_cells(row.second))
        table.add_row(*cells, *_difference(row))
    return rendered(table) + "\n" + "   ".join(f"{mark} {count}" for mark, count in marks.items())


def _cells(value: PairedValue | None) -> tuple[str, str, str]:
    return (value.content, value.op_type, value.name) if value else ("", "", "")


def _difference(row: PairRow) -> tuple[str, str]:
    if row.distance is None:
        return "", ""
    return max_abs(row.distance), number(row.distance.max_rel)
