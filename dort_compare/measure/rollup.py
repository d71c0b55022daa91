"""The errors of many values in few lines: by module, and the gradients ranked."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dort_compare.measure.distance.distances import Distance, Number
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.rows import Row, json_number


@dataclass(frozen=True)
class ModuleErrors:
    """What the values of a module, with those of the modules in it, add: ``worst`` is the largest local error in units
    of its noise floor, None where none was measured."""

    module: str
    values: int
    diverging: int
    inheriting: int
    worst: float | None

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "worst": json_number(self.worst)}


def by_module(rows: Iterable[Row]) -> tuple[ModuleErrors, ...]:
    """One for every module that rows stem from, and for those around it; a module before those in it, these in the
    order of execution."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        for path in _around(row.module):
            found[path].append(row)
    return tuple(_errors(path, found[path]) for path in _in_tree_order(found))


def ranked(rows: Iterable[OutcomeRow]) -> list[tuple[OutcomeRow, float]]:
    """The outputs or gradients with their distance from eager in units of the noise floor, the furthest first; one that
    only one side has is infinitely far."""
    found = [(row, distance_in_floors(row.distance, row.noise_floor)) for row in rows]
    return sorted(found, key=lambda each: -each[1])


def _around(path: str) -> Iterator[str]:
    yield ""
    parts = path.split(".") if path else []
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])


def _in_tree_order(paths: Iterable[str]) -> Iterator[str]:
    below: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        if path:
            below[path.rpartition(".")[0]].append(path)
    waiting = [""]
    while waiting:
        path = waiting.pop()
        yield path
        waiting.extend(reversed(below[path]))


def _errors(path: str, rows: Sequence[Row]) -> ModuleErrors:
    statuses = [row.status for row in rows]
    ratios = [distance_in_floors(row.local, row.noise_floor) for row in rows if row.local is not None]
    return ModuleErrors(
        path, len(rows), statuses.count("diverges"), statuses.count("inherits"), max(ratios, default=None)
    )


def distance_in_floors(gap: Distance | None, floor: float | None) -> float:
    """A distance in units of its noise floor; infinite where there is none, or a finding in its place."""
    return math.inf if gap is None or gap.finding is not None else in_floors(gap.max_abs, floor)


def in_floors(largest: Number | None, floor: float | None) -> float:
    """max |expected - got| in units of its noise floor; infinite where one of them is not known."""
    if largest == 0:
        return 0.0
    return float(largest) / floor if largest is not None and floor else math.inf
