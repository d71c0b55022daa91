"""Threads of torch's that wait busily let go of the cores before a session runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

IS_GNU = any((Path(torch.__file__).parent / "lib").glob("libgomp*"))
SCRIPT = """
import os
import torch

def threads():
    return len(os.listdir("/proc/self/task"))

@torch.compile(backend="dort", dynamic=False)
def product(x):
    return x @ x.mT

torch.set_num_threads(3)
x, many = torch.randn(SIZE, SIZE), torch.ones(2**20)
for _ in range(5):
    right = product(x)
counts = [threads()]
many.mul_(2)
counts.append(threads())
found = product(x)
counts.append(threads())
many.mul_(2)
counts.append(threads())
assert torch.equal(found, right) and (many == 4).all()
print(*(count - counts[0] for count in counts[1:]), torch.get_num_threads())
"""


def counted(size: int) -> list[int]:
    """Torch's threads besides the main one after a kernel of its own, after a session and after another kernel, and the
    number it is set to; ``size`` is that of the matrices of the session."""
    script = SCRIPT.replace("SIZE", str(size))
    return [int(n) for n in subprocess.check_output([sys.executable, "-c", script], text=True).split()]


@pytest.mark.skipif(not IS_GNU, reason="this torch has another OpenMP than GNU's")
@pytest.mark.parametrize(("size", "left"), [(1024, 0), (4, 2)], ids=["work for all", "shorter than ending them"])
def test_torchs_threads_end_before_a_session_that_has_work_for_all(size: int, left: int) -> None:
    assert counted(size) == [2, left, 2, 3]
