"""Whether a page shows what a command writes; times, versions and digits that rounding decides are left free."""

from __future__ import annotations

import difflib
import itertools
import math
import re
from pathlib import Path

from doc_pages import ROOT

HOME = "/home/me"
"""The folder in which a page's commands are run, as the page writes it."""

_FREE = [
    (re.compile(r"\b\d+(\.\d+)? (ms|s)\b"), r"# \2"),
    (re.compile(r"\b\d+\.\d+\.\d+(\+\w+)?\b"), "#.#.#"),
    (re.compile(r"─+"), "─"),
    (re.compile(r"^(\S*)[=~](?= )", re.MULTILINE), r"\1~"),
]
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?")
_WRITTEN_OUT = re.compile(r"\d\.\d\de[-+]\d\d")
_SAME, _ROUNDING = 0.05, 1e-5
_PROCESSORS = 0.25
"""Of errors, which tables show as multiples of noise floors: those follow the kernels that a processor has."""


def difference(shown: str, written: str, folder: Path) -> str | None:
    """What of a shown output is not so, line by line; None where all is. ``...`` on a line of its own is any lines."""
    written = written.replace(str(folder), HOME).replace(f"{ROOT}/", "")
    if _fits(_words(shown), _words(written)):
        return None
    return "\n".join(difflib.unified_diff(shown.splitlines(), written.splitlines(), "shown", "written", lineterm=""))


def _words(text: str) -> list[str]:
    """The words of an output: how long a path is decides where lines break, and rounding the order of
    those that tell of nothing else."""
    for pattern, instead in _FREE:
        text = pattern.sub(instead, text)
    blocks = itertools.groupby(text.splitlines(), lambda line: line.startswith("~ "))
    return [
        word for is_noise, lines in blocks for line in (sorted(lines) if is_noise else lines) for word in line.split()
    ]


def _fits(shown: list[str], found: list[str]) -> bool:
    """Whether the words are the same, pieces between ``...`` each found in order."""
    pieces: list[list[str]] = [[]]
    for word in shown:
        if word == "...":
            pieces.append([])
        else:
            pieces[-1].append(word)
    start = 0
    for number, piece in enumerate(pieces):
        last = len(found) - len(piece)
        places = [0] if number == 0 else [last] if number == len(pieces) - 1 else range(start, last + 1)
        if len(pieces) == 1 and last != 0:
            return False
        place = next((at for at in places if at >= start and _alike(piece, found[at : at + len(piece)])), None)
        if place is None:
            return False
        start = place + len(piece)
    return True


def _alike(shown: list[str], found: list[str]) -> bool:
    return len(shown) == len(found) and all(map(_same, shown, found))


def _same(shown: str, found: str) -> bool:
    if shown == found:
        return True
    if _NUMBER.sub("#", shown) != _NUMBER.sub("#", found):
        return bool(_WRITTEN_OUT.fullmatch(shown) or _WRITTEN_OUT.fullmatch(found)) and _both_small(shown, found)
    return all(map(_near, _NUMBER.findall(shown), _NUMBER.findall(found)))


def _near(shown: str, found: str) -> bool:
    """Counts are equal; measured values are near each other, or both of a size that rounding decides."""
    if shown.isdigit() and found.isdigit():
        return shown == found
    a, b = float(shown), float(found)
    is_cell = _WRITTEN_OUT.fullmatch(shown) and _WRITTEN_OUT.fullmatch(found)
    return (
        math.isclose(a, b, rel_tol=_PROCESSORS if is_cell else _SAME)
        or max(abs(a), abs(b)) < _ROUNDING
        or _both_small(shown, found)
    )


def _both_small(shown: str, found: str) -> bool:
    """Whether both are cells of a table, in which less than 1 is less than a noise floor."""
    cells = all(_WRITTEN_OUT.fullmatch(each) or each == "0" for each in (shown, found))
    return cells and max(float(shown), float(found)) < 1
