"""The verdict over two ONNX models: what departs first, what it rests on and what it reaches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dort_compare.align.orders import Order
from dort_compare.align.returned import counterparts
from dort_compare.align.sides import Side
from dort_compare.captures import bodies
from dort_compare.measure.diff import outputs as returned
from dort_compare.measure.diff.causes import Cause, cause_of, node_labels
from dort_compare.measure.diff.other_numbers import other_numbers, told_of
from dort_compare.measure.diff.unpaired import Unpaired, unpaired_values
from dort_compare.measure.diff.value_rows import ValueRow
from dort_compare.measure.divergence import Judgement


@dataclass(frozen=True)
class Findings:
    """``reason`` says in a line what the verdict rests on; ``causes`` are all that departs, in order, each once."""

    titles: tuple[str, str]
    verdict: Judgement
    reason: str
    causes: tuple[Cause, ...]
    rows: tuple[ValueRow, ...]
    unpaired: tuple[Unpaired, ...]
    notes: tuple[str, ...]


def findings(first: Side, second: Side, rows: Sequence[ValueRow], taken: Collection[Order]) -> Findings:
    """Judges the rows; ``taken`` are the orders in which the second model takes its inputs.

    Diverges where a value departs, an output has no partner, is of another shape, holds another value or is not there,
    or nothing but inputs and constants inside was compared, or none of the outputs holds a number.
    """
    by_name = {row.pair.second: row for row in rows if row.pair.is_main}
    order = _order(second)
    told = [row for row in rows if row.status == "diverges" and not _is_told_by_another(row, by_name)]
    departing = sorted(told, key=lambda row: order.get(row.pair.second, -1))
    causes = tuple(cause_of(first, second, row, by_name) for row in _once_a_node(first, second, departing))
    paired = frozenset(row.pair.first for row in rows), frozenset(row.pair.second for row in rows)
    unequal = other_numbers(first, second, rows)
    known = {key: why for each in unequal for key, why in each.reasons.items()}
    unpaired = (
        *unpaired_values("first", first, paired[0], known),
        *unpaired_values("second", second, paired[1], known),
    )
    outputs = counterparts(first, second, {(row.pair.first, row.pair.second) for row in rows})
    faults = returned.without_numbers(first), returned.fault(first, second, outputs, paired, taken)
    verdict, reason = _verdict(first, second, rows, causes, next(filter(None, faults), None))
    notes = (*_notes(first), *_notes(second), *returned.notes(first, second, outputs), *told_of(first, second, unequal))
    if not causes:
        notes += tuple(_accumulated(second, by_name))
    return Findings((first.flow.title, second.flow.title), verdict, reason, causes, tuple(rows), unpaired, notes)


def _is_told_by_another(row: ValueRow, rows: Mapping[str, ValueRow]) -> bool:
    """Whether it departs from one more of several equal values of the first model."""
    main = rows.get(row.pair.second)
    return row.pair.how == "copy" and main is not None and main.status == "diverges"


def _once_a_node(first: Side, second: Side, rows: Sequence[ValueRow]) -> list[ValueRow]:
    """Without further results of a node that depart from those of the same node: they are one fault, but for which of
    them are returned, and of a node with bodies, in which several may be made. Of constants each is told."""
    found: dict[tuple[int, ...], ValueRow] = {}
    for number, row in enumerate(rows):
        nodes = first.made_at(row.pair.first), second.made_at(row.pair.second)
        mine = second.node(row.pair.second)
        is_alone = row.pair.how == "returned" or min(nodes) < 0 or (mine is not None and any(bodies(mine.proto)))
        found.setdefault((*nodes, number) if is_alone else nodes, row)
    return list(found.values())


def _verdict(
    first: Side, second: Side, rows: Sequence[ValueRow], causes: Sequence[Cause], fault: str | None
) -> tuple[Judgement, str]:
    if causes:
        return "diverge", causes[0].reason
    compared = [row for row in rows if _is_compared(first, second, row)]
    if all(row.status == "random" for row in compared):
        return "diverge", "nothing was compared: no computed value of one model has a partner in the other"
    if not any(row.inherited.numel for row in compared):
        return "diverge", "nothing was compared: all that both models compute is empty; other inputs may tell"
    if fault is not None:
        return "diverge", fault
    is_folded = not (first.flow.nodes or second.flow.nodes)
    return "agree", f"{len(compared)} {'returned' if is_folded else 'computed'} values paired, and none departs"


def _is_compared(first: Side, second: Side, row: ValueRow) -> bool:
    """Whether a value is computed, or returned where an optimizer has folded what computed it."""
    is_returned = row.pair.second in second.flow.outputs and row.pair.first not in first.flow.inputs
    return is_returned or row.pair.second in second.flow.producer


def _accumulated(second: Side, rows: Mapping[str, ValueRow]) -> Iterator[str]:
    why = "rounding that has accumulated"
    if any(row.status == "random" for row in rows.values()):
        why = f"random numbers that both models draw, or {why}"
    for name in second.flow.outputs:
        row = rows.get(name)
        if row is not None and row.status == "inherits":
            apart = row.inherited.finding or row.inherited.told("first", "second")
            yield f"output {name!r}: {apart}, although no value departs by itself: {why}"


def _order(side: Side) -> dict[str, float]:
    """When a value is there; a constant or an input just before its first reader."""
    made = {name: float(node.index) for node in side.flow.nodes for name in node.results}
    for name in (*side.flow.constants, *side.flow.inputs):
        readers = side.flow.readers.get(name)
        made[name] = readers[0][0].index - 0.5 if readers else float(len(side.flow.nodes))
    return made


def _notes(side: Side) -> Iterator[str]:
    flow = side.flow
    inside = [node for node in flow.nodes if node.has_body]
    if inside:
        names = ", ".join(node_labels(inside[:5])) + (", ..." if len(inside) > 5 else "")
        yield f"{flow.title}: {len(inside)} nodes with bodies are compared at their results and not entered: {names}"
    if flow.calls:
        yield f"{flow.title}: local functions that could not be inlined are not entered: {', '.join(flow.calls[:5])}"
    if side.orders:
        some = ", ".join(map(repr, list(side.orders)[:5])) + (", ..." if len(side.orders) > 5 else "")
        yield f"{flow.title}: values with their dimensions in another order: {len(side.orders)}: {some}"
    opaque = [name for node in flow.nodes for name in node.results if name in flow.opaque]
    if opaque:
        kinds = "sequences, optionals, maps, strings or numbers of few bits"
        yield f"{flow.title}: {len(opaque)} values are {kinds} and not compared"
