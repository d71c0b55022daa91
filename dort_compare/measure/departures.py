"""Which departures explain a difference further on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dort_compare.align.sides import Side
from dort_compare.measure.value_rows import ValueRow

_CERTAIN = frozenset(["input", "dataflow", "output"])


def effectless(second: Side, rows: Sequence[ValueRow]) -> frozenset[tuple[str, str]]:
    """Pairs that depart although every value behind them agrees: they were never the same, only in like places.

    What is the same expression of the same values is the same all the same.
    """
    by_name: dict[str, ValueRow] = {row.pair.second: row for row in rows if row.pair.how != "copy"}
    affected = _affected(second, by_name)
    return frozenset(
        (row.pair.first, row.pair.second)
        for row in rows
        if row.status == "departs" and row.pair.how not in _CERTAIN and row.pair.second not in affected
    )


def _affected(second: Side, rows: Mapping[str, ValueRow]) -> set[str]:
    """The values behind which, at the next paired ones, the models differ."""
    flow, found = second.flow, set()
    outputs = set(flow.outputs)
    for name in reversed(list(second.values())):
        results = [r for node, _ in flow.readers.get(name, ()) for r in node.results if r in second.sketches]
        if any(_differs(rows[r]) if r in rows else r in found for r in results) or (
            name in outputs and (name not in rows or _differs(rows[name]))
        ):
            found.add(name)
    return found


def _differs(row: ValueRow) -> bool:
    return row.status in ("departs", "inherits")
