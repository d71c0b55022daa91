"""Where the log of a compilation goes, and how much of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

NAME = "dort_compare.log"
STAGES, MODULES, OPERATORS = logging.INFO, (logging.INFO + logging.DEBUG) // 2, logging.DEBUG
"""Levels: what is compiled and how long it takes; its modules; their operators."""
_BY_VERBOSITY = (logging.NOTSET, STAGES, MODULES, OPERATORS)
MOST_VERBOSE = len(_BY_VERBOSITY) - 1


def loggers(verbose: int) -> tuple[logging.Logger, ...]:
    """The logger ``dort_compare.log`` and, for ``verbose`` from 1 to 3, one that writes to stderr alone."""
    shared = logging.getLogger(NAME)
    if not verbose:
        return (shared,)
    own = logging.Logger(NAME, _BY_VERBOSITY[verbose])  # known to nobody else: another backend's log is not its own
    own.addHandler(logging.StreamHandler())
    return shared, own


def tell(given: Sequence[logging.Logger], levels: Iterable[tuple[int, Callable[[], str]]]) -> None:
    """To each logger the first text whose level it is enabled for; no other is made."""
    choices = list(levels)
    for logger in given:
        for level, text in choices:
            if logger.isEnabledFor(level):
                logger.log(level, _Later(text))
                break


class _Later:
    """A text that is made once, when a handler writes it; what fails in it is for ``logging`` to handle."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make: Callable[[], str] | None = make
        self._text = ""

    def __str__(self) -> str:
        if self._make is not None:
            self._text, self._make = self._make(), None
        return self._text
