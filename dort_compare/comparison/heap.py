"""The memory that a comparison frees, kept for its next values."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of glibc's mallopt(3)."""
_MIB = 2**20
_USUAL = {_MMAP_THRESHOLD: 32 * _MIB, _TRIM_THRESHOLD: 64 * _MIB}
"""What glibc comes to by itself once blocks of 32 MiB have been freed. It does not tell what it has."""
_KEPT = {_MMAP_THRESHOLD: 100 * _MIB, _TRIM_THRESHOLD: 256 * _MIB}
"""With more, `benchmarks/compare_cost.py` takes more memory, as blocks of many sizes leave gaps, and no less time."""
_CHOSEN_BY_USER = {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"}


@contextmanager
def kept_memory() -> Iterator[None]:
    """Within it glibc keeps blocks of up to 100 MiB that are freed, and reuses them.

    Otherwise it maps those of 32 MiB and more anew each time, and the kernel clears them page by page. At the end what
    is free goes back, and the thresholds stay those of a process that has freed large blocks. Nothing changes with
    another C library, with a glibc that refuses so high a threshold, in a thread that has memory of its own in glibc,
    as all but the main one, or where the environment sets thresholds. It does not nest: the first to end ends it for
    all.
    """
    libc = _glibc() if _CHOSEN_BY_USER.isdisjoint(os.environ) else None
    if libc is None or not _set(libc, _KEPT):
        yield
        return
    try:
        yield
    finally:
        _set(libc, _USUAL)
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    return libc if hasattr(libc, "gnu_get_libc_version") else None


def _set(libc: ctypes.CDLL, thresholds: dict[int, int]) -> bool:
    """Sets thresholds, in order, up to the first that is refused; says whether none is."""
    return all(libc.mallopt(parameter, size) for parameter, size in thresholds.items())
