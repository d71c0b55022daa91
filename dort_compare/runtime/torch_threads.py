"""Has torch's threads let go of the cores before ONNX Runtime's take them.

OpenMP's threads wait busily for the next kernel of torch's, those of GNU's OpenMP for some milliseconds. Until then
each takes half a core from a session that follows a loss, an optimizer's step or a kernel left to torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

_LIBRARIES = Path(torch.__file__).parent / "lib" / "libtorch_global_deps.so"
"""Names what torch is linked with; its OpenMP is found through it, whichever others a process has."""
_SOFT = 1
"""``omp_pause_soft`` of OpenMP 5.0."""
_SECONDS_A_THREAD = 1e-4
"""What it takes to end a thread and to start it again, with some room."""
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def let_go() -> None:
    """Ends the threads that work for the calling thread; torch starts others when it needs them.

    Where there are none, or torch has no OpenMP, nothing is done.
    """
    _pause()(_SOFT)


@functools.cache
def _pause() -> Callable[[int], object]:
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL(str(_LIBRARIES)).omp_pause_resource_all
    return lambda _: None


def with_the_cores(run: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """``run`` after torch's threads have let go, unless it once took less time than to end and start these."""
    shortest = math.inf

    @functools.wraps(run)
    def with_them(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        nonlocal shortest
        if shortest > _SECONDS_A_THREAD * (torch.get_num_threads() - 1):
            let_go()
        start = time.perf_counter()
        result = run(*args, **kwargs)
        shortest = min(shortest, time.perf_counter() - start)
        return result

    return with_them
