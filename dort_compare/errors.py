"""The exceptions a user can meet. Each message is one line: what is wrong, where, and the mend."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

_HEAD, _TAIL = 200, 60
_LONG = re.compile(r"'[^'\n]{400,}'|\S{400,}")
"""What no one reads to its end: a path is shorter, of a name the ends tell more than all of it."""


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


def nearest(name: str, choices: Sequence[str]) -> str:
    """ ", did you mean 'x'?" where a choice resembles ``name``, else nothing."""
    close = difflib.get_close_matches(name, choices, n=1)
    return f", did you mean {close[0]!r}?" if close else ""
