"""What a person sees while waiting."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

T = TypeVar("T")

SCATTER = "how far rounding scatters the results"
"""The name of a stage that a comparison comes to more than once."""


class Waiting:
    """A bar on stderr that goes when all is done; nothing at all where stderr is no terminal."""

    def __init__(self) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self._bar = Progress(
            *columns,
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            disable=not _is_terminal(sys.stderr),
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def stage(self, what: str) -> None:
        """Names what is done now, for which nobody knows how long it takes."""
        self._bar.reset(self._task, total=None, description=what)

    def each(self, what: str, values: Iterable[T], total: int) -> Iterator[T]:
        """The values, counted as they come; ``total`` is how many there are at most."""
        self._bar.reset(self._task, total=total, description=what)
        for value in values:
            self._bar.advance(self._task)
            yield value


def _is_terminal(stream: Any) -> bool:
    """Whether somebody sees what is written; stderr may be None, closed, or what a program has put in its place."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False
