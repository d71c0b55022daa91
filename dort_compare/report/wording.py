"""Words and lines that several texts of a report have in common."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from dort_compare.errors import shortened

WIDTH = 80
FEW = 6
"""Names that are told, of many."""


def wrapped(text: str) -> str:
    """The text in lines of 80 characters, those after the first further in; a long word, as a path, is not cut."""
    text = shortened(text)
    further = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.fill(text, WIDTH, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)


def counted(number: int, noun: str) -> str:
    """ "1 value", "2 values"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def tally(words: Iterable[str]) -> str:
    """How often each word comes, in the order in which they come first: "3 ok, 1 diverges", or "none"."""
    return ", ".join(f"{number} {word}" for word, number in Counter(words).items()) or "none"


def few(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more
