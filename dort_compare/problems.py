"""What to say, and to do, about an exception of somebody else's code: torch's, ONNX Runtime's or the system's."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from dort_compare.errors import DortError, DumpError, one_line

_LOG = logging.getLogger("dort_compare.errors")
_SHORT = re.compile(r"alloc|out of memory|[Ss]torage size calculation overflowed")
_ASKED = re.compile(r"allocate (\d+) bytes")
_LESS = "make batch, lengths or layers smaller, or let less be compared at a time (--memory, memory=)"


def said(problem: BaseException) -> str:
    """What an exception says, in one line; of the system's its words alone, for the number and the path stand apart."""
    words = problem.strerror if isinstance(problem, OSError) else None
    return " ".join(str(words or problem).split())


def out_of_memory(problem: BaseException) -> str:
    """That memory is short, where, for how much, and what helps; "" where ``problem`` is another one.

    Where, say the notes that the problem was given on its way.
    """
    text = one_line(problem)
    is_memory = isinstance(problem, MemoryError) or (isinstance(problem, RuntimeError) and _SHORT.search(text))
    if not is_memory:
        return ""
    asked = _ASKED.search(text)
    size = f" for {max(int(asked[1]) / 2**30, 0.1):,.1f} GiB" if asked else ""
    where = "".join(f" {note}" for note in getattr(problem, "__notes__", ()))
    return f"not enough memory{size}{where}: {_LESS}"


def level_of(problem: BaseException) -> int:
    """At which level of logging to tell what went without: a lack of memory, which can be mended, as a warning."""
    return logging.WARNING if out_of_memory(problem) else logging.DEBUG


def raise_if_short(problem: BaseException) -> None:
    """Raises the ``problem`` again where it is that memory is short."""
    if out_of_memory(problem):
        raise problem


@contextmanager
def as_dump_error(what: str) -> Iterator[None]:
    """What torch, onnx, numpy or ONNX Runtime raise over somebody else's file becomes a DumpError of one line.

    What a line of this package raises by itself, as a wrong index does, is a mistake of its own, and is left alone.
    The rest has its cause, and its traceback in the log ``dort_compare.errors`` at level DEBUG: it may be one, too.
    """
    try:
        yield
    except DortError:
        raise
    except Exception as problem:
        if _is_ours(problem):
            raise
        _LOG.debug("%s cannot be run", what, exc_info=True)
        if short := out_of_memory(problem):
            raise DumpError(f"{what} cannot be run: {short}") from problem
        where = "".join(f" {note}" for note in getattr(problem, "__notes__", ())[:1])
        raise DumpError(f"{what} cannot be run{where}: {one_line(problem)}") from problem


def _is_ours(problem: Exception) -> bool:
    """Whether a line of this package raised it, and no kernel that was called there: these raise RuntimeErrors."""
    if isinstance(problem, (RuntimeError, MemoryError, OSError)) or problem.__traceback__ is None:
        return False
    *_, (frame, _) = traceback.walk_tb(problem.__traceback__)
    return str(frame.f_globals.get("__name__")).partition(".")[0] == __package__
