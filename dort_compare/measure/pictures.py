"""Pictures of the values that depart, or err most, taken as they pass."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import replace

import torch

from dort_compare.measure.picture import Picture, picture
from dort_compare.measure.rollup import distance_in_floors
from dort_compare.measure.rows import SEVERITY, Row
from dort_compare.trace.four_executions import Executed

KEPT = 32
"""Of how many values of a graph a picture is kept."""


class Pictures:
    """Takes pictures of one graph: first of what diverges, then of what inherits, then of what errs most.

    A value is freed once it is measured, so it is taken if it ranks among the ``KEPT`` so far.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[tuple[int, float], int, str, Picture]] = []
        self._number = itertools.count(0, -1)

    def see(self, executed: Executed, _precision: torch.dtype | None, row: Row) -> None:
        """Is shown a value with its row, in the order of execution."""
        rank, expected, own = _rank(row), executed.step.value, executed.own
        if rank is None or own is None or own.shape != expected.shape or not own.numel():
            return
        if own.is_complex() or expected.is_complex() or (len(self._kept) == KEPT and rank <= self._kept[0][0]):
            return
        exact = executed.step.exact if executed.step.exact.shape == own.shape else None
        taken = picture(expected, own, exact, row.inherited.worst if row.inherited else None)
        entry = (rank, next(self._number), row.fx_node, taken)
        if len(self._kept) == KEPT:
            heapq.heapreplace(self._kept, entry)
        else:
            heapq.heappush(self._kept, entry)

    def on(self, rows: Iterable[Row]) -> list[Row]:
        """The rows of the graph, once all have passed, with the pictures that were kept."""
        found = list(rows)
        taken = {fx_node: each for _, _, fx_node, each in self._kept}
        return [replace(row, picture=taken.get(row.fx_node)) for row in found]


def _rank(row: Row) -> tuple[int, float] | None:
    """What is looked at first, in order; None for what is equal or was not compared."""
    if row.inherited is None or row.status not in SEVERITY or (row.inherited.equal and row.status == "ok"):
        return None
    gap = row.inherited if row.local is None or row.status == "inherits" else row.local
    return SEVERITY[row.status], distance_in_floors(gap, row.noise_floor)
