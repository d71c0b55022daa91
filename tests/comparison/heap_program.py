"""Prints how many pages the kernel clears for 64 MiB after as much was freed, before a comparison's memory is kept and
within, and how many the process has less at the end."""

from __future__ import annotations

import resource
from pathlib import Path

import torch

from dort_compare.comparison.heap import kept_memory


def faults_of_the_second() -> int:
    torch.ones(2**24)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


before = faults_of_the_second()
with kept_memory():
    within = min(faults_of_the_second() for _ in range(5))  # something small may come to lie where the first one was
    held = resident()
print(before, within, held - resident())
