"""Threads of torch's that wait busily let go of the cores before a session runs."""

from __future__ import annotations

import ast
import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
import torch

GNU = list((Path(torch.__file__).parent / "lib").glob("libgomp*"))
pytestmark = pytest.mark.skipif(
    not GNU or not hasattr(ctypes.CDLL(str(GNU[0])), "omp_pause_resource_all"),
    reason="this torch has another OpenMP than GNU's, or one that ends no threads",
)
PRODUCTS = """
import os
import torch

def threads():
    return len(os.listdir("/proc/self/task"))

@torch.compile(backend="dort", dynamic=False)
def product(x):
    return x @ x.mT

torch.set_num_threads(3)
many = torch.ones(2**20)
"""
COUNTED = """
def counted(x):
    for _ in range(5):
        right = product(x)
    counts = [threads()]
    many.mul_(2)
    counts.append(threads())
    found = product(x)
    counts.append(threads())
    many.mul_(0.5)
    counts.append(threads())
    assert torch.equal(found, right) and (many == 1).all()
    many.sum(), product(torch.ones(512, 512))
    return *(count - counts[0] for count in counts[1:]), torch.get_num_threads()

large = torch.randn(1024, 1024)
print({"large": counted(large), "laid out by torch": counted(large.mT), "small": counted(large[:4, :4].contiguous())})
"""
FORKED = """
product(torch.randn(8, 8))
for count in (1, 3):
    many.mul_(2)
    child = os.fork()
    if not child:
        torch.set_num_threads(count)
        from dort_compare.runtime.torch_threads import let_go, letting_go
        let_go()
        letting_go(print)("alive with", count)
        os._exit(0)
    os.waitpid(child, 0)
"""


def printed(script: str) -> str:
    """What a process of its own prints that knows of a product of a matrix with its transpose."""
    command = [sys.executable, "-u", "-c", PRODUCTS + script]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout


def test_torchs_threads_end_before_a_session_that_has_work_for_all() -> None:
    """Counted besides the main one: after a kernel of torch's, after a session, and after another kernel; at last the
    number that torch is set to."""
    assert ast.literal_eval(printed(COUNTED)) == {
        "large": (2, 0, 2, 3),
        "laid out by torch": (2, 0, 2, 3),
        "small": (2, 2, 2, 3),
    }


def test_a_forked_process_does_not_wait_for_the_threads_of_its_parent() -> None:
    assert printed(FORKED).splitlines() == ["alive with 1", "alive with 3"]
