"""Runs the first command of each page of the gallery, and puts the HTML report that it writes beside the built page."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.display import status_iterator

GALLERY = Path(__file__).parent / "gallery"
REPORTS = "reports"
COMMAND = [sys.executable, "-c", "from dort_compare.cli import main; main()"]


def link(_app: Sphinx, page: nodes.document) -> None:
    """Lets a page link to a report that is not there before the site is built."""
    for pending in list(page.findall(addnodes.pending_xref)):
        target = pending["reftarget"]
        if target in {f"{REPORTS}/{_report(arguments)}" for arguments in _calls()}:
            pending.replace_self(nodes.reference("", "", *pending.children, refuri=target, internal=True))


def write(app: Sphinx, problem: Exception | None) -> None:
    """Makes what is not there yet, or older than its program.

    Raises ExtensionError where a command ends otherwise than with a verdict.
    """
    if problem or app.builder.format != "html" or not GALLERY.is_dir():
        return
    folder = app.outdir / "docs" / "gallery" / REPORTS
    folder.mkdir(parents=True, exist_ok=True)
    made = {folder / _report(arguments): arguments for arguments in _calls()}
    changed = _changed()
    missing = [report for report in made if not report.exists() or report.stat().st_mtime < changed]
    with ThreadPoolExecutor(os.cpu_count()) as processes:
        ends = processes.map(lambda report: _run([*made[report], "--html", str(report)]), missing)
        for _ in status_iterator(ends, "reports of the gallery... ", "brown", len(missing)):
            pass


def _calls() -> Iterator[list[str]]:
    """The arguments of the first ``$ dort-compare`` line of each page that asks for a page of HTML."""
    for page in sorted(GALLERY.glob("*.md")):
        lines = page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
        commands = (
            shlex.split(line.removeprefix("$ dort-compare")) for line in lines if line.startswith("$ dort-compare")
        )
        yield from [command for command in commands if "--html" in command][:1]


def _report(arguments: list[str]) -> str:
    """The file that a call writes its report to; where an option is given twice, its last one counts."""
    return arguments[arguments.index("--html") + 1]


def _changed() -> float:
    """When the newest of the gallery's pages and programs was written."""
    return max(file.stat().st_mtime for file in GALLERY.iterdir() if file.is_file())


def _run(arguments: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=GALLERY, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise ExtensionError(f"dort-compare {shlex.join(arguments)} failed: {done.stderr.strip()}")
