"""The exceptions a user can meet. Each message is one line: what is wrong, where, and the mend."""

from __future__ import annotations

import difflib
import logging
import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_LOG = logging.getLogger(__name__)
_HEAD, _TAIL = 200, 60
_LONG = re.compile(r"'[^'\n]{400,}'|\S{400,}")
"""What no one reads to its end: a path is shorter, of a name the ends tell more than all of it."""
_SHORT = re.compile(r"alloc|out of memory|[Ss]torage size calculation overflowed")
_ASKED = re.compile(r"allocate (\d+) bytes")
_LESS = "make batch, lengths or layers smaller, or let less be compared at a time (--memory, memory=)"


class DortError(Exception):
    """Base of every error of this package that is for the person who calls it; very long names in it are shortened."""

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


class UsageError(DortError, ValueError):
    """A wrong argument, option or flag value."""


class NothingToDifferentiateError(UsageError):
    """A backward call of a model of whose outputs none depends on what requires a gradient."""


class UnsupportedGraphError(DortError, NotImplementedError):
    """A graph holds something that cannot be expressed in ONNX; ``reason`` is the message without the place."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class MissingLoweringError(UnsupportedGraphError):
    """An ATen overload without a lowering; ``others`` are the further ones in the same graph."""

    def __init__(self, target: str, fx_node: str, source: str, others: Sequence[str] = ()) -> None:
        also = f", nor for {', '.join(others)}" if others else ""
        super().__init__(
            f"no lowering for {target} (FX node {fx_node}, {source or 'source line unknown'}){also}; "
            "fallback=True leaves it to eager torch, and CONTRIBUTING.md shows how to add one",
            reason="no lowering",
        )
        self.target = target
        self.fx_node = fx_node
        self.source = source


class LoweringError(DortError):
    """A lowering made an ONNX value whose dtype or shape is not what torch computed."""


class ExportError(DortError):
    """PyTorch's own exporter could not convert a graph."""


class RuntimeUnavailableError(DortError):
    """ONNX Runtime, a provider or a device that was asked for is not there."""


class ExecutionError(DortError, RuntimeError):
    """ONNX Runtime refused a model or failed while running it; a RuntimeError, as torch's kernels raise."""


class OutOfRangeError(ExecutionError, IndexError):
    """An index was out of range while a model ran; an IndexError, as torch's kernels raise."""


class CheckError(DortError, RuntimeError):
    """A condition that the model itself checks does not hold; the message is the model's, the type torch's kernel's."""


class OtherBackendError(DortError):
    """Another backend of torch.compile, which was to be compared too, cannot compile or run the model."""


class UserCodeError(DortError):
    """The caller's own code raised; ``frames`` is the traceback, as text, of what of it is theirs."""

    def __init__(self, message: str, frames: str) -> None:
        super().__init__(message)
        self.frames = frames


class DumpError(DortError):
    """A dump, or another file of a model or report, cannot be written or read."""


class StaleRecordError(DortError):
    """A recorded input was changed in place after it was recorded."""


def shortened(text: str) -> str:
    """``text`` with the middle of every very long word or quoted name left out; files keep names whole."""
    return _LONG.sub(lambda found: _ends(found[0]), text)


def _ends(name: str) -> str:
    return f"{name[:_HEAD]}...{len(name) - _HEAD - _TAIL} more...{name[-_TAIL:]}"


def one_line(problem: BaseException) -> str:
    """The type of an exception and what it says, in one line."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())


def said(problem: BaseException) -> str:
    """What an exception says, in one line; of the system's its words alone, for the number and the path stand apart."""
    words = problem.strerror if isinstance(problem, OSError) else None
    return " ".join(str(words or problem).split())


def nearest(name: str, choices: Sequence[str]) -> str:
    """ ", did you mean 'x'?" where a choice resembles ``name``, else nothing."""
    close = difflib.get_close_matches(name, choices, n=1)
    return f", did you mean {close[0]!r}?" if close else ""


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
def told(what: str) -> Iterator[None]:
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
