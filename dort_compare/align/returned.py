"""Which output of one model stands for which of another: by name, else by place."""

from __future__ import annotations

from collections.abc import Sequence, Set

from dort_compare.align.pair import Pair
from dort_compare.align.sides import Side


def counterparts(first: Side, second: Side, pairs: Set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Outputs that a caller takes for the same, (first, second): of one name, then of one place among the others.

    Where the others are not equally many, no place says anything: those that are among ``pairs``.
    """
    theirs, ours = returned(first), returned(second)
    named = [(name, name) for name in theirs if name in ours]
    theirs, ours = ([name for name in names if (name, name) not in named] for names in (theirs, ours))
    if len(theirs) == len(ours):
        return [*named, *zip(theirs, ours, strict=True)]
    for name in theirs:
        same = next((other for other in ours if (name, other) in pairs), None)
        if same is not None:
            ours.remove(same)
            named.append((name, same))
    return named


def returned(side: Side) -> list[str]:
    """The outputs that are numeric tensors, each once."""
    return [name for name in dict.fromkeys(side.flow.outputs) if name in side.sketches]


def unpaired_counterparts(first: Side, second: Side, pairs: Sequence[Pair]) -> list[Pair]:
    """Outputs that stand for one another, may hold the same, and are not paired: to be held against each other too."""
    known = {(pair.first, pair.second) for pair in pairs}
    return [
        Pair(one, other, "returned")
        for one, other in counterparts(first, second, known)
        if (one, other) not in known and first.sketches[one].may_equal(second.sketches[other])
    ]
