"""Has torch's threads let go of the cores before ONNX Runtime's take them.

GNU OpenMP's threads wait busily, for some milliseconds, for the next kernel of torch's. They share the cores with the
threads of a session that follows a loss, an optimizer's step or a kernel left to torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

_LINKS = Path(torch.__file__).parent / "lib" / "libtorch_global_deps.so"
"""What torch is linked with; its OpenMP is found through it, whichever others a process has."""
_SOFT = 1
"""``omp_pause_soft`` of OpenMP 5.0."""
_SECONDS_A_THREAD = 1e-4
"""What it takes to end a thread and to start it again, with some room."""
_PROCESS = os.getpid()
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def let_go() -> None:
    """Ends the threads that work for the calling thread; torch starts others when it needs them.

    Where there are none, or torch has no OpenMP, nothing is done; nor in a forked process: OpenMP would wait there for
    threads that only its parent has.
    """
    if os.getpid() == _PROCESS:
        _pause()(_SOFT)


@functools.cache
def _pause() -> Callable[[int], object]:
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL(str(_LINKS)).omp_pause_resource_all
    return lambda _: None


def letting_go(run: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """``run`` after torch's threads have let go, unless it last took less time than to end and start these."""
    seconds = math.inf

    @functools.wraps(run)
    def after_letting_go(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        nonlocal seconds
        others = torch.get_num_threads() - 1
        if others and seconds > _SECONDS_A_THREAD * others:
            let_go()
        start = time.perf_counter()
        result = run(*args, **kwargs)
        seconds = time.perf_counter() - start
        return result

    return after_letting_go
