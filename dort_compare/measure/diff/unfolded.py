"""Constants of which one model has folded into its own what the other one computes: in like places, and no pairs."""

from __future__ import annotations

from collections.abc import Sequence

from dort_compare.align.sides import Side
from dort_compare.measure.diff.value_rows import ValueRow
from dort_compare.trace.dataflow import Node


def unfolded(first: Side, second: Side, rows: Sequence[ValueRow]) -> frozenset[tuple[str, str]]:
    """Pairs by place of constants that depart where one model has folded into its constants what the other computes.

    It shows in what the second computes of them: a later value that departs has the same partner, or what reads it
    departs, or leads to what does, and stands where the first reads something else.
    """
    steps = _Steps(first, second, [row for row in rows if row.pair.how != "copy"])
    return frozenset(
        (pair.first, pair.second)
        for pair in (row.pair for row in rows if row.status == "diverges")
        if pair.how == "place" and pair.second not in second.flow.producer
        if any(steps.is_folded(node) for node, _ in second.flow.readers.get(pair.second, ()))
    )


class _Steps:
    def __init__(self, first: Side, second: Side, rows: Sequence[ValueRow]) -> None:
        self._first, self._flow = first, second.flow
        self._partners = {row.pair.second: row.pair.first for row in rows}
        self._departing = {row.pair.second for row in rows if row.status == "diverges"}
        self._latest: dict[str, int] = {}
        for name in self._departing & self._flow.producer.keys():
            made, partner = self._flow.producer[name][0].index, self._partners[name]
            self._latest[partner] = max(made, self._latest.get(partner, made))

    def is_folded(self, node: Node) -> bool:
        """Whether a node of the second model does more than the first one's that makes its partner."""
        paired = ((name, self._partners[name]) for name in node.results if name in self._partners)
        return any(
            self._latest.get(partner, -1) > node.index
            or any(self._is_skipped(reader, partner) for reader, _ in self._flow.readers.get(name, ()))
            for name, partner in paired
        )

    def _is_skipped(self, reader: Node, partner: str) -> bool:
        """Whether what the first model makes of ``partner`` is left out before a reader of the second."""
        departing = (name for name in reader.results if name in self._departing)
        if any(self._reads_another(reader, name, partner) for name in departing):
            return True
        alone = (name for name in reader.results if name not in self._partners)
        return self._stands_alone(reader, partner) and any(self._next_paired(name) & self._departing for name in alone)

    def _reads_another(self, reader: Node, result: str, partner: str) -> bool:
        node = self._first.node(self._partners[result])
        return node is not None and node.proto.op_type == reader.proto.op_type and partner not in node.operands

    def _stands_alone(self, reader: Node, partner: str) -> bool:
        """Whether ``partner`` is read, and by no node of the reader's operator."""
        op_types = {node.proto.op_type for node, _ in self._first.flow.readers.get(partner, ())}
        return bool(op_types) and reader.proto.op_type not in op_types

    def _next_paired(self, name: str) -> set[str]:
        """The values with a pair that are computed of one without any other between."""
        found, seen, todo = set[str](), {name}, [name]
        while todo:
            results = {result for node, _ in self._flow.readers.get(todo.pop(), ()) for result in node.results}
            found |= results & self._partners.keys()
            todo += results - self._partners.keys() - seen
            seen |= results
        return found
