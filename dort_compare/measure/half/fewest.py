"""The smallest part of a list for which something holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def fewest(candidates: Sequence[T], holds: Callable[[Sequence[T]], bool]) -> list[T]:
    """A part of ``candidates``, for all of which ``holds`` is true, of which no candidate can be spared.

    ``holds`` has to stay true where candidates are added. For k of n candidates it is asked some 2k log2(n / k) times
    (Junker, QuickXplain: Preferred Explanations and Relaxations for Over-Constrained Problems, AAAI 2004); of several
    such parts the earlier candidates are taken.
    """
    return _needed([], list(candidates), holds, is_new=True)


def _needed(given: list[T], among: list[T], holds: Callable[[Sequence[T]], bool], *, is_new: bool) -> list[T]:
    if is_new and holds(given):
        return []
    if len(among) <= 1:
        return among
    first, second = among[: len(among) // 2], among[len(among) // 2 :]
    of_second = _needed([*given, *first], second, holds, is_new=True)
    of_first = _needed([*given, *of_second], first, holds, is_new=bool(of_second))
    return [*of_first, *of_second]
