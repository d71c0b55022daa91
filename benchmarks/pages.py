"""What the pages that benchmarks write have in common: the command, the day and the versions above a table."""

from __future__ import annotations

import platform
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path


def page(title: str, about: str, versions: Sequence[str], columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown page of one table, made by the program that runs.

    ``about`` is the docstring of that program: what follows its summary and its example stands above the table.
    ``versions`` names packages.
    """
    command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    installed = ", ".join(f"{name} {version(name)}" for name in versions)
    head = f"`{command}`, {time.strftime('%Y-%m-%d')}, {platform.machine()}, {installed}."
    table = [columns, ["---"] * len(columns), *rows]
    lines = [f"# {title}", "", head, "", about.split("\n\n", 2)[2]]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in table), ""])


def show(text: str, file: Path | None) -> None:
    """Prints a page, and writes it to ``file`` where one is given."""
    print(text)
    if file is not None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
