"""Which departures explain a difference further on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from dort_compare.align.sides import Side
from dort_compare.measure.value_rows import ValueRow
from dort_compare.trace.dataflow import Node

_CERTAIN = frozenset(["input", "dataflow", "output", "returned"])


def effectless(second: Side, rows: Sequence[ValueRow]) -> frozenset[tuple[str, str]]:
    """Pairs that depart although what is behind them agrees: they were never the same, only in like places.

    Behind a computed value these are the next paired ones; behind a constant, the next whose content was found equal,
    for what merely reads it was paired by it. What is the same expression of the same values is the same all the same.
    """
    by_name: dict[str, ValueRow] = {row.pair.second: row for row in rows if row.pair.is_main}
    computed = _affected(second, by_name, through=frozenset())
    constants = _affected(second, by_name, through=frozenset(["place", "dataflow"]))
    return frozenset(
        (row.pair.first, row.pair.second)
        for row in rows
        if row.status == "departs"
        and row.pair.how not in _CERTAIN
        and row.pair.second not in (computed if row.pair.second in second.flow.producer else constants)
    )


def unfolded(second: Side, rows: Sequence[ValueRow]) -> frozenset[tuple[str, str]]:
    """Pairs by place of constants that depart, where what is computed of them has the same partner as a later value
    that departs: the first model has folded into its constants what the second computes between the two."""
    flow = second.flow
    partners = {row.pair.second: row.pair.first for row in rows if row.pair.how != "copy"}
    departing = [row for row in rows if row.status == "departs"]
    latest: dict[str, int] = {}
    for row in departing:
        if row.pair.second in flow.producer:
            made = flow.producer[row.pair.second][0].index
            latest[row.pair.first] = max(made, latest.get(row.pair.first, made))

    def is_taken(node: Node) -> bool:
        return any(latest.get(partners.get(result, ""), -1) > node.index for result in node.results)

    return frozenset(
        (row.pair.first, row.pair.second)
        for row in departing
        if row.pair.how == "place" and row.pair.second in flow.constants
        if any(is_taken(node) for node, _ in flow.readers.get(row.pair.second, ()))
    )


def _affected(second: Side, rows: Mapping[str, ValueRow], through: Set[str]) -> set[str]:
    """The values behind which, at the next paired ones that are not paired as in ``through``, the models differ."""
    flow, found = second.flow, set[str]()
    outputs = set(flow.outputs)
    for name in reversed(list(second.values())):
        results = [r for node, _ in flow.readers.get(name, ()) for r in node.results if r in second.sketches]
        is_wrong_output = name in outputs and (name not in rows or not rows[name].is_near)
        if is_wrong_output or any(_differs(r, rows, through, found) for r in results):
            found.add(name)
    return found


def _differs(name: str, rows: Mapping[str, ValueRow], through: Set[str], affected: Set[str]) -> bool:
    """On its own values: on the first model's, a wrong pair among the operands would do."""
    row = rows.get(name)
    return name in affected if row is None or row.pair.how in through else not row.is_near
