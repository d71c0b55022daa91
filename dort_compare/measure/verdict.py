"""Agree or diverge, and where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dort_compare.measure.departed_result import departed_result
from dort_compare.measure.distance.distances import Distance
from dort_compare.measure.divergence import Divergence, Judgement, at_row, outside
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.reach import Lineage
from dort_compare.measure.rows import Row


def judge(
    rows: Sequence[Row],
    outcome: Sequence[OutcomeRow],
    lineage: Lineage | None = None,
    departure: Divergence | None = None,
    fallbacks: int = 0,
) -> tuple[Judgement, tuple[Divergence, ...]]:
    """The verdict over all values of all graphs and over the outputs and gradients of the whole model, and its causes.

    What departs by itself is the cause, calls before ``departure``, the one before ONNX; where nothing does, it is what
    the first of the other rules finds. Of a dump there is no ``outcome``; ``fallbacks`` calls ran in eager torch.
    """
    if causes := (*_departing_calls(rows, lineage), *([departure] if departure else [])):
        return "diverge", causes
    cause = (
        departed_result(rows, outcome, lineage)
        or _all_in_eager_torch(rows, fallbacks)
        or _nothing_compared(rows, outcome)
        or _silent_graph(rows, outcome)
        or _absent_result(rows, outcome, lineage)
    )
    return ("diverge", (cause,)) if cause else ("agree", ())


def _departing_calls(rows: Sequence[Row], lineage: Lineage | None) -> list[Divergence]:
    """A cause is a call whose own result departs. Those whose values change from run to run come first, then the others
    in order of execution.

    Calls that depart and share ONNX nodes, as in a model of which few values stand for the graph's, are one cause, at
    the first of them.
    """
    astray: dict[tuple[int, str], Row] = {}
    for row in rows:
        if row.status == "diverges":
            astray.setdefault((row.graph, row.call), row)
    in_order = sorted(astray.values(), key=lambda row: not row.is_unstable)
    return [_of_all(group, lineage) for group in _by_shared_nodes(in_order)]


def _by_shared_nodes(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows in groups, of which the first in each shares an ONNX node with every other."""
    groups: list[list[Row]] = []
    group_of: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        nodes = [(row.graph, name) for name in row.onnx_nodes]
        group = next((group_of[node] for node in nodes if node in group_of), None)
        if group is None:
            group = []
            groups.append(group)
            group_of.update(dict.fromkeys(nodes, group))
        group.append(row)
    return groups


def _of_all(rows: Sequence[Row], lineage: Lineage | None) -> Divergence:
    """The cause that the first row is, with what the others say of it."""
    cause, others = at_row(rows[0], lineage), rows[1:]
    if not others:
        return cause
    shared = [name for name in cause.onnx_nodes if all(name in row.onnx_nodes for row in others)]
    names, nodes = ", ".join(row.call for row in others), f": {', '.join(shared)}" if shared else ""
    too = f"{names} {'depart' if len(others) > 1 else 'departs'} too, made by some of the same ONNX nodes{nodes}"
    reach = (
        lineage.reached(cause.graph, *(row.call for row in rows), run=cause.run)
        if lineage and cause.graph is not None
        else None
    )
    return replace(cause, reason=f"{cause.reason}; {too}", reach=reach)


def _all_in_eager_torch(rows: Sequence[Row], fallbacks: int) -> Divergence | None:
    """Equal outputs do not speak for graphs of which all calls ran in eager torch."""
    if rows or not fallbacks:
        return None
    return outside("", "nothing was compared: all that was compiled ran in eager torch")


def _nothing_compared(rows: Sequence[Row], outcome: Sequence[OutcomeRow]) -> Divergence | None:
    """Silence proves nothing, and equal outputs do not speak for graphs of which no value was compared. Nor does NaN
    alone, which any other operation makes of NaN, or what is empty. Graphs that compute nothing leave only outputs to
    compare."""
    found = [row.inherited for row in rows] if rows else [row.distance for row in outcome]
    if any(distance is not None and distance.numbers != 0 for distance in found):
        return None
    return outside("", f"nothing was compared{_without_numbers(found)}")


def _silent_graph(rows: Sequence[Row], outcome: Sequence[OutcomeRow]) -> Divergence | None:
    """Where there are no outputs, values of one graph do not speak for another of which none was compared, unless that
    computes nothing, or nothing but values that torch leaves unset."""
    if outcome:
        return None
    silent = {row.graph for row in rows if not _is_unset(row)} - {row.graph for row in rows if row.inherited}
    return outside("", f"nothing was compared of graph {min(silent)}") if silent else None


def _absent_result(rows: Sequence[Row], outcome: Sequence[OutcomeRow], lineage: Lineage | None) -> Divergence | None:
    """Where there are no outputs, one departs that no ONNX value stands for, nor for what it is a view of, or else one
    that the model of its graph does not return."""
    if outcome or lineage is None:
        return None
    there = {(row.graph, row.fx_node) for row in rows if row.onnx_value is not None}
    for row in rows:
        if row.onnx_value is not None or not lineage.is_result(row.graph, row.fx_node):
            continue
        if any((row.graph, name) not in there for name in lineage.shown(row.graph, row.fx_node)):
            cause = at_row(row, lineage)
            return replace(cause, reason=f"{cause.reason}; output or gradient {row.fx_node} is not compared")
    unreturned = {(graph, name) for graph in {row.graph for row in rows} for name in lineage.unreturned(graph)}
    absent = next((row for row in rows if (row.graph, row.fx_node) in unreturned), None)
    if absent is None:
        return None
    return replace(at_row(absent, lineage), reason=f"the ONNX model does not return {absent.fx_node}")


def _is_unset(row: Row) -> bool:
    """Whether a value is none of torch's numbers, although an ONNX value stands for it."""
    return row.status == "unaligned" and row.onnx_value is not None


def _without_numbers(found: Iterable[Distance | None]) -> str:
    """Why what was measured is none; "" where nothing was measured."""
    return ": all that was measured is empty or NaN; other inputs may tell" if any(found) else ""
