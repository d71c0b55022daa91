"""Which pairs were none, told by what departs on them and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set

import torch

from dort_compare.align.expressions import VIEWS
from dort_compare.align.sides import Side
from dort_compare.measure.diff.value_rows import ValueRow
from dort_compare.measure.noise.floor import noise_floor
from dort_compare.trace.dataflow import Node

_CERTAIN = frozenset(["input", "dataflow", "output", "returned"])
WEAK = frozenset(["content", "place", "guess"])
"""How pairs are found that may be none: other values hold as much, or stand in as like a place."""
_HARDLY = 16
"""So many times as far a value lies on a wrong pair as by itself."""


def effectless(first: Side, second: Side, rows: Sequence[ValueRow]) -> frozenset[tuple[str, str]]:
    """Pairs that depart although nothing comes of it: they were never the same, only in like places.

    All that they lead to agrees again, results included; of what a constant leads to only what was paired by its
    content counts, for what merely reads it was paired by it. What is the same expression of the same values is the
    same all the same, and so is what departs on a `misleading` pair. What only says in which shape others are shown has
    done nothing where these have the right shape.
    """
    by_name = _by_second(rows)
    computed = _affected(second, by_name, through=frozenset())
    constants = _affected(second, by_name, through=frozenset(["place", "dataflow"]))
    return frozenset(
        pair
        for row in rows
        if row.status == "diverges"
        and row.pair.how not in _CERTAIN
        and (
            row.pair.second not in (computed if row.pair.second in second.flow.producer else constants)
            or _says_right_shapes(first, second, row.pair.second, by_name)
        )
        and _misleading(second, row, by_name) is None
        for pair in alike(first, second, row)
    )


def _says_right_shapes(first: Side, second: Side, name: str, rows: Mapping[str, ValueRow]) -> bool:
    """Whether a value does nothing but say shapes, and what is shown in them has the shape of its partner."""

    def is_right(node: Node) -> bool:
        row = rows.get(node.results[0])
        if row is None or node.proto.op_type not in VIEWS or node.operands[0] == name:
            return False
        return first.sketches[row.pair.first].shape == second.sketches[row.pair.second].shape

    readers = second.flow.readers.get(name, ())
    return bool(readers) and all(is_right(node) for node, _ in readers)


def misleading(first: Side, second: Side, rows: Sequence[ValueRow]) -> frozenset[tuple[str, str]]:
    """Pairs on which a value departs that agrees by itself: they stand for different steps of one computation, as the
    largest score and the logarithm of the sum of all exponentials do in two ways to a softmax."""
    by_name = _by_second(rows)
    found = (_misleading(second, row, by_name) for row in by_name.values())
    return frozenset(pair for row in found if row is not None for pair in alike(first, second, row))


def _misleading(second: Side, row: ValueRow, rows: Mapping[str, ValueRow]) -> ValueRow | None:
    """The last weak pair before a value that departs, though hardly by itself: one that differs, else one that is not
    equal; None where there is none. What lies between is the same expression of the same values, or has no pair."""
    found, seen = [], set[str]()
    todo = [row.pair.second] if _is_misled(row) else []
    while todo:
        node = second.node(todo.pop())
        for name in set(node.operands if node else ()) - seen:
            seen.add(name)
            operand = rows.get(name)
            if operand is None or (operand.status != "equal" and operand.pair.how not in WEAK):
                todo.append(name)
            elif operand.status != "equal":
                differs = operand.status == "diverges" or not operand.is_near
                found.append((differs, second.made_at(name), operand))
    return max(found, key=lambda each: each[:2])[2] if found else None


def _is_misled(row: ValueRow) -> bool:
    """Whether a value departs on the first model's operands, and hardly on its own."""
    if row.status != "diverges" or row.local is None:
        return False
    return row.is_near or (row.inherited.max_abs or math.inf) * _HARDLY <= (row.local.max_abs or 0)


def _by_second(rows: Sequence[ValueRow]) -> dict[str, ValueRow]:
    return {row.pair.second: row for row in rows if row.pair.is_main}


def alike(first: Side, second: Side, row: ValueRow) -> list[tuple[str, str]]:
    """A pair with all others of the same contents, as of copies and views; a constant's alone."""
    one, other = row.pair.first, row.pair.second
    if other not in second.flow.producer:
        return [(one, other)]
    return [(a, b) for a in first.holding(one) for b in second.holding(other)]


def with_all_like_it(first: Side, second: Side, row: ValueRow) -> list[tuple[str, str]]:
    """A pair with all others of the same contents; of a constant every pair that it could have."""
    if row.pair.second in second.flow.producer:
        return alike(first, second, row)
    return [(name, row.pair.second) for name in first.sketches]


def _affected(second: Side, rows: Mapping[str, ValueRow], through: Set[str]) -> set[str]:
    """The values of which something comes: by others that differ they lead to an output that does, or to a value that
    agrees by less than a rounding of its own explains. Pairs by ``through`` are passed over."""
    flow, found = second.flow, set[str]()
    outputs = set(flow.outputs)
    for name in reversed([*flow.values()]):
        results = [r for node, _ in flow.readers.get(name, ()) for r in node.results if r]
        is_wrong_output = name in outputs and name in second.sketches and (name not in rows or not rows[name].is_near)
        if is_wrong_output or any(_differs(r, rows, through, found) for r in results):
            found.add(name)
    return found


def _differs(name: str, rows: Mapping[str, ValueRow], through: Set[str], affected: Set[str]) -> bool:
    """On its own values: on the first model's, a wrong pair among the operands would do."""
    row = rows.get(name)
    if row is None or row.pair.how in through or not row.is_near:
        return name in affected
    gap, scale = row.inherited.max_abs or 0.0, float(row.inherited.scale or 0)
    return gap > max(row.noise_floor, noise_floor(torch.float32, scale, None))
