"""What a comparison keeps of the memory that it frees."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

import pytest
import torch

from dort_compare import compare
from dort_compare.comparison import heap
from dort_compare.comparison.heap import kept_memory

ELEMENTS = 2**24  # 64 MiB
PAGES = 4 * ELEMENTS // resource.getpagesize()
HAS_GLIBC = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")


class Libc:
    """Remembers the thresholds that it is given, if they are not above its limit."""

    def __init__(self) -> None:
        self.thresholds: dict[int, int] = {}
        self.limit = 2**40
        self.trimmed = 0

    def mallopt(self, parameter: int, value: int) -> bool:
        if value > self.limit:
            return False
        self.thresholds[parameter] = value
        return True

    def malloc_trim(self, _: int) -> None:
        self.trimmed += 1


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment that sets nothing."""
    found: dict[str, str] = {}
    monkeypatch.setattr(heap.os, "environ", found)
    return found


@pytest.fixture
def libc(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> Libc:
    found = Libc()
    monkeypatch.setattr(heap, "_glibc", lambda: found)
    return found


def faults_of_the_second() -> int:
    """The pages that the kernel clears for a large tensor after one as large was freed."""
    torch.ones(ELEMENTS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(ELEMENTS)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> int:
    """The pages of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.skipif(not HAS_GLIBC, reason="no glibc")
def test_memory_is_used_again_within_and_goes_back_at_the_end(environment: dict[str, str]) -> None:
    with kept_memory():
        # something small may come to lie where the first of two was
        assert min(faults_of_the_second() for _ in range(5)) < PAGES / 8
        held = resident()
    assert held - resident() > PAGES / 2


def test_thresholds_are_glibcs_again_also_after_an_error(libc: Libc) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(dict(libc.thresholds))
            raise NotImplementedError("on purpose")

    seen: list[dict[int, int]] = []
    with pytest.raises(NotImplementedError):
        compare(Model(), (torch.ones(2),))
    assert seen == [heap._KEPT]
    assert libc.thresholds == heap._USUAL
    assert libc.trimmed == 1


@pytest.mark.parametrize("name", ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_thresholds_that_the_user_sets_stay(name: str, libc: Libc, environment: dict[str, str]) -> None:
    environment[name] = "1"
    with kept_memory():
        pass
    assert libc.thresholds == {}
    assert libc.trimmed == 0


def test_an_older_glibc_is_left_alone(libc: Libc) -> None:
    """It refuses a threshold above 32 MiB, and with another one set would adjust none by itself any more."""
    libc.limit = 2**25
    with kept_memory():
        pass
    assert libc.thresholds == {}
    assert libc.trimmed == 0


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    monkeypatch.setattr(heap, "_glibc", lambda: None)
    with kept_memory():
        pass
