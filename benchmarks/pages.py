"""What the pages that benchmarks write have in common: command, day, machine and versions above a table."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import torch

CHOSEN = (
    *("GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"),
    *("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"),
)
"""Variables of the environment that decide how memory is allocated, and how long threads of torch wait busily."""


def processor() -> str:
    """The name of the processor, its family and model, and the vectors that torch's kernels use on it: most figures
    depend on them."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text() if known.exists() else ""
    told = dict(re.findall(r"^(model name|cpu family|model)\s*: (.+)$", lines, re.MULTILINE))
    name = told.get("model name", platform.machine())
    which = f", family {told['cpu family']} model {told['model']}" if {"cpu family", "model"} <= told.keys() else ""
    return f"{name}{which} ({torch.backends.cpu.get_cpu_capability()})"


def command() -> str:
    """What a person types to measure the same: with what of the environment decides figures, without the journal of a
    run that went on where another stopped."""
    journal = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    journal.add_argument("--journal")
    _, flags = journal.parse_known_args()
    chosen = [f"{name}={os.environ[name]}" for name in CHOSEN if name in os.environ]
    return shlex.join([*chosen, "python", f"benchmarks/{Path(sys.argv[0]).name}", *flags])


def page(title: str, about: str, versions: Sequence[str], columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown page of one table, made by the program that runs.

    ``about`` is the docstring of that program: what follows its summary and its example stands above the table.
    ``versions`` names packages.
    """
    installed = ", ".join(f"{name} {version(name)}" for name in versions)
    head = f"`{command()}`, {time.strftime('%Y-%m-%d')}, {processor()}, {installed}."
    table = [columns, ["---"] * len(columns), *rows]
    lines = [f"# {title}", "", head, "", about.split("\n\n", 2)[2]]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in table), ""])


def show(text: str, file: Path | None) -> None:
    """Prints a page, and writes it to ``file`` where one is given."""
    print(text)
    if file is not None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)


def flags() -> argparse.ArgumentParser:
    """``--threads`` and ``--write``, for the ``parents`` of the parser of a program that makes one page."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--write", type=Path, help="file for the table, beside the screen")
    return parser
