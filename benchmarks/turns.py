"""Things that take turns: a machine that slows down slows all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Times = Mapping[str, Sequence[float]]
"""Seconds of a run by name, one number a round."""


def timed(functions: Mapping[str, Callable[[], Any]], rounds: int, batch_seconds: float) -> Times:
    """The times of all functions; within a round each runs for about ``batch_seconds`` of the first one's time, at
    least once, after a call that is not timed: none pays for the threads and caches that the one before left."""
    first = next(iter(functions.values()))
    first()
    repeats = max(1, round(batch_seconds / _seconds(first, 1)))
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            function()
            times[name].append(_seconds(function, repeats))
    return times


def ratio(times: Times, name: str, over: str) -> float:
    """The median of the ratios within a round."""
    return statistics.median(a / b for a, b in zip(times[name], times[over], strict=True))


def milliseconds(seconds: Sequence[float]) -> str:
    """The median, to a tenth, or where it is below 10 to a thousandth."""
    middle = statistics.median(seconds) * 1e3
    return f"{middle:.1f}" if middle >= 10 else f"{middle:.3f}"


def _seconds(function: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats
