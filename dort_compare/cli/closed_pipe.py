"""Who reads stdout may go away, as ``head`` does: neither a verdict nor a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click


class ClosedPipeError(Exception):
    """Nobody reads stdout any more. Of a BrokenPipeError click makes status 1, which here means that models differ."""


class Commands(click.Group):
    """A group of commands; raises ClosedPipeError where stdout is closed, also while help is printed."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _told():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _told():
            return super().invoke(ctx)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ClosedPipeError from None
