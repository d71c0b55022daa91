"""Names of one model that stand for names of another, by the words in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

_WORD = re.compile(r"[a-zA-Z]+|\d+")


def by_name(names: Sequence[str], others: Sequence[str]) -> dict[str, str]:
    """By name, the other that shares more of its words than any else does, on either side, as ``fc1.weight`` of
    ``p_fc1_weight`` does; the last of both belong together. Who is not told apart so is left out."""
    words = {each: _words(each) for each in (*names, *others)}
    shares = {name: {other: _shared(words[name], words[other]) for other in others} for name in names}
    found: dict[str, str] = {}
    while True:
        left, free = set(names) - found.keys(), set(others) - set(found.values())
        if not left or not free:
            return found
        if len(left) == len(free) == 1:
            return found | dict(zip(left, free, strict=True))
        others_of = {name: _only_best({other: shares[name][other] for other in free}) for name in left}
        names_of = {other: _only_best({name: shares[name][other] for name in left}) for other in free}
        clear = {name: other for name, other in others_of.items() if other is not None and names_of[other] == name}
        if not clear:
            return found
        found |= clear


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
