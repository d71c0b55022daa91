"""Names of one model that stand for names of another, by the words in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher

_WORD = re.compile(r"[a-zA-Z]+|\d+")


def by_name(names: Iterable[str], others: Iterable[str]) -> dict[str, str]:
    """By name, the other that shares more of its words than any else does, on either side, as ``fc1.weight`` of
    ``p_fc1_weight`` does; the last of both belong together. Who is not told apart so is left out."""
    left, free = {name: _words(name) for name in names}, {other: _words(other) for other in others}
    found: dict[str, str] = {}
    while left and free:
        if len(left) == len(free) == 1:
            return found | dict(zip(left, free, strict=True))
        others_of = {
            name: _only_best({other: _shared(words, free[other]) for other in free}) for name, words in left.items()
        }
        names_of = {
            other: _only_best({name: _shared(left[name], words) for name in left}) for other, words in free.items()
        }
        clear = {name: other for name, other in others_of.items() if other is not None and names_of[other] == name}
        if not clear:
            break
        found |= clear
        left = {name: words for name, words in left.items() if name not in clear}
        free = {other: words for other, words in free.items() if other not in clear.values()}
    return found


def _only_best(shares: Mapping[str, float]) -> str | None:
    """Who has the largest share; None where two have it, or all have none."""
    largest = max(shares.values())
    best = [name for name, share in shares.items() if share == largest > 0]
    return best[0] if len(best) == 1 else None


def _words(name: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(name.lower()))


def _shared(one: Sequence[str], other: Sequence[str]) -> float:
    """The share of words and numbers that are in both, in one order; 0 where no word is: numbers alone tell nothing."""
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    both = [word for block in blocks for word in one[block.a : block.a + block.size]]
    return 2 * len(both) / (len(one) + len(other)) if any(word.isalpha() for word in both) else 0.0
