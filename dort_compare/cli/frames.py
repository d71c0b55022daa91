"""The traceback of somebody else's code, without the frames that are not theirs."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dort_compare.errors import DortError, UserCodeError
from dort_compare.problems import out_of_memory

_OURS = str(Path(__file__).parent.parent)
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


@contextmanager
def theirs(what: str) -> Iterator[None]:
    """Within it runs code of the caller's: whatever it raises becomes a UserCodeError, what it exits with too."""
    try:
        yield
    except (DortError, KeyboardInterrupt):
        raise
    except BaseException as problem:
        raise user_code_error(what, problem) from problem


def user_code_error(what: str, problem: BaseException) -> UserCodeError:
    """The error that tells of an exception that ``what`` raised."""
    if short := out_of_memory(problem):
        return UserCodeError(f"{what}: {short}", own_frames(problem))
    reason = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
    return UserCodeError(f"{what} raised {reason}", own_frames(problem))


def own_frames(problem: BaseException) -> str:
    """The traceback without frames of ours, of Python and of installed packages; with the latter where nothing else is
    left."""
    found = traceback.TracebackException.from_exception(problem, compact=True)
    files = [frame.filename for each in _chain(found) for frame in each.stack]
    is_kept = _is_own if any(map(_is_own, files)) else _is_code
    for each in _chain(found):
        _keep(each, is_kept)
    return "".join(found.format())


def _keep(found: traceback.TracebackException, is_kept: Callable[[str], bool]) -> None:
    found.stack = traceback.StackSummary.from_list([frame for frame in found.stack if is_kept(frame.filename)])


def _is_code(file: str) -> bool:
    return not file.startswith((_OURS, "<frozen importlib"))


def _is_own(file: str) -> bool:
    return _is_code(file) and not file.startswith((*_INSTALLED, "<"))


def _chain(found: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    while found is not None:
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
