"""What a comparison keeps of the memory that it frees."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dort_compare import compare
from dort_compare.comparison import heap
from dort_compare.comparison.heap import kept_memory

PAGES = 2**26 // resource.getpagesize()


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


@pytest.mark.skipif(heap._glibc() is None, reason="no glibc")
def test_memory_is_used_again_within_and_goes_back_at_the_end() -> None:
    """In a new process: a request that glibc cannot fulfil moves a thread to memory that cannot grow so far."""
    environment = {name: value for name, value in os.environ.items() if name not in heap._CHOSEN_BY_USER}
    command = [sys.executable, str(Path(__file__).with_name("heap_program.py"))]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    before, within, freed = map(int, ran.stdout.split())
    assert before > PAGES / 2
    assert within < PAGES / 8
    assert freed > PAGES / 2


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
