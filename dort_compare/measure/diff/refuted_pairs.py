"""Which departures explain a difference further on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from dort_compare.align.sides import Side
from dort_compare.measure.diff.value_rows import ValueRow
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


def unfolded(first: Side, second: Side, rows: Sequence[ValueRow]) -> frozenset[tuple[str, str]]:
    """Pairs by place of constants that depart where one model has folded into its constants what the other computes.

    It shows in what the second computes of them: a later value that departs has the same partner, or what reads it
    departs and stands where the first reads something else.
    """
    flow = second.flow
    own = [row for row in rows if row.pair.how != "copy"]
    partners = {row.pair.second: row.pair.first for row in own}
    departing = {row.pair.second: row.pair for row in own if row.status == "departs"}
    latest: dict[str, int] = {}
    for name in departing.keys() & flow.producer.keys():
        made = flow.producer[name][0].index
        latest[partners[name]] = max(made, latest.get(partners[name], made))

    def is_skipped(result: str, partner: str) -> bool:
        readers = [(node, name) for node, _ in flow.readers.get(result, ()) for name in node.results]
        theirs = [(node, first.node(partners[name])) for node, name in readers if name in departing]
        return any(
            one is not None and one.proto.op_type == node.proto.op_type and partner not in one.operands
            for node, one in theirs
        )

    def is_folded(node: Node) -> bool:
        paired = ((result, partners[result]) for result in node.results if result in partners)
        return any(latest.get(partner, -1) > node.index or is_skipped(result, partner) for result, partner in paired)

    return frozenset(
        (pair.first, name)
        for name, pair in departing.items()
        if pair.how == "place" and name in flow.constants
        if any(is_folded(node) for node, _ in flow.readers.get(name, ()))
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
