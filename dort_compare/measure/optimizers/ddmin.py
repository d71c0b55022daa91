"""The smallest part of a set that still does what the whole does: delta debugging."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def smallest(items: Sequence[T], holds: Callable[[Sequence[T]], bool]) -> list[T]:
    """A part of ``items`` for which ``holds`` is true, and for which it is not if any one item is taken away.

    ``holds(items)`` must be true. Ends after at most about n squared questions for n items, log n where one is enough
    (ddmin; Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002).
    """
    if holds([]):
        return []
    left, parts = list(items), 2
    while len(left) > 1:
        chunks = _cut(left, parts)
        rests = [[item for item in left if item not in chunk] for chunk in chunks]
        found = next((part for part in chunks if holds(part)), None)
        if found is not None:
            left, parts = found, 2
            continue
        found = next((rest for rest in rests if holds(rest)), None) if parts > 2 else None
        if found is not None:
            left, parts = found, parts - 1
        elif parts >= len(left):
            break
        else:
            parts = min(len(left), 2 * parts)
    return left


def _cut(items: list[T], parts: int) -> list[list[T]]:
    bounds = [round(i * len(items) / parts) for i in range(parts + 1)]
    return [items[start:end] for start, end in pairwise(bounds)]
