"""Every command of the gallery is run: it ends as its page says, writes what stands there and a report of the cause."""

from __future__ import annotations

import io
import math
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from dort_compare.cli import main

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"
HOME = "/home/me"
"""The folder in which the commands are run, as the pages write it."""
CAUSES = {
    "padded_pool": "avg_pool2d",
    "sigmoid_tail": "sigmoid",
    "token_hash": "pow_1",
    "scores_overflow": "bmm",
    "small_gradients": "getitem",
    "rotary_positions": "arange",
    "upsampled_mask": "add_2",
    "mixture": "logaddexp",
    "enlarged": "_upsample_bilinear2d_aa",
}
"""The FX node that is the cause, by page."""
SLOW = {"scores_overflow", "small_gradients"}
NUMBER = re.compile(r"-?\b\d+(?:\.\d+)?(?:e[-+]\d+)?\b")
NEAR = 0.05


def names() -> Iterator[object]:
    for name in CAUSES:
        yield pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])


def text(name: str) -> str:
    return (GALLERY / f"{name}.md").read_text(encoding="utf-8")


def sessions(name: str) -> list[tuple[str, str, int]]:
    """The page's command lines with the output that stands below and the exit status that the page tells."""
    blocks = "".join(re.findall(r"^```console\n(.*?)^```", text(name), re.MULTILINE | re.DOTALL))
    pieces = [piece.partition("\n") for piece in re.split(r"^\$ ", blocks, flags=re.MULTILINE)[1:]]
    found = []
    for (line, _, shown), (after, _, status) in zip(pieces, [*pieces[1:], ("", "", "")], strict=True):
        told = int(status) if after == "echo $?" else int(shown.startswith("diverge"))
        if line != "echo $?":
            found.append((line, shown, told))
    return found


def ran(line: str) -> tuple[int, str]:
    """The exit status and stdout of a command, run in this process."""
    program, *words = shlex.split(line)
    written = io.StringIO()
    with redirect_stdout(written):
        try:
            main(words) if program == "dort-compare" else runpy.run_path(words[0], run_name="__main__")
        except SystemExit as stopped:
            return int(stopped.code or 0), written.getvalue()
    return 0, written.getvalue()


def fits(shown: str, written: str) -> bool:
    """Whether an output is the one shown, wherever its lines break; ``...`` stands for any words."""
    wanted, found = (re.sub("─+", "─", each).split() for each in (shown, written))
    pieces = [[word for word in piece.split(" ") if word] for piece in " ".join(wanted).split("...")]
    if not _alike(pieces[0], found):
        return False
    if len(pieces) == 1:
        return len(pieces[0]) == len(found)
    rest = found[len(pieces[0]) :]
    for piece in pieces[1:-1]:
        place = next((at for at in range(len(rest)) if _alike(piece, rest[at:])), None)
        if place is None:
            return False
        rest = rest[place + len(piece) :]
    return len(pieces[-1]) <= len(rest) and _alike(pieces[-1], rest[len(rest) - len(pieces[-1]) :])


def _alike(piece: list[str], words: list[str]) -> bool:
    """Whether the words begin like the piece; numbers in them may be others that are near."""
    pairs = list(zip(piece, words, strict=False))
    return len(pairs) == len(piece) and all(
        NUMBER.sub("#", a) == NUMBER.sub("#", b) and all(map(_near, NUMBER.findall(a), NUMBER.findall(b)))
        for a, b in pairs
    )


def _near(shown: str, found: str) -> bool:
    """Counts are equal, measured values near each other or both of the size of a rounding."""
    if shown.lstrip("-").isdigit():
        return shown == found
    a, b = float(shown), float(found)
    return math.isclose(a, b, rel_tol=NEAR) or max(abs(a), abs(b)) < 1e-5


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for program in GALLERY.glob("*.py"):
        shutil.copy(program, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    for name in CAUSES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", list(names()))
def test_the_commands_of_a_page_write_what_stands_there(name, folder):
    for line, shown, told in sessions(name):
        status, written = ran(line)
        written = written.replace(str(folder), HOME)
        assert status == told, f"{line}\n{written}"
        assert fits(shown, written), f"{line}\n{written}"
    report = (folder / f"{name}.html").read_text(encoding="utf-8")
    assert re.search(rf'"([^"]* )?{CAUSES[name]}( [^"]*)?"', report)


def test_every_program_has_a_page_and_the_index_names_all():
    assert {path.stem for path in GALLERY.glob("*.py")} == set(CAUSES)
    assert {path.stem for path in GALLERY.glob("*.md")} == {*CAUSES, "index"}
    index = text("index")
    toctree = index.partition("```{toctree}")[2].split()
    for name in CAUSES:
        assert f"]({name}.md)" in index
        assert f"](reports/{name}.html)" in index
        assert name in toctree


@pytest.mark.parametrize("name", CAUSES)
def test_a_page_has_its_report_its_cause_and_a_check_of_it(name):
    lines = [line for line, *_ in sessions(name)]
    assert f"`{CAUSES[name]}`" in text(name)
    assert f"[The report](reports/{name}.html)" in text(name)
    assert lines[0].startswith("dort-compare run ")
    assert lines[0].endswith(f" --html {name}.html")
    assert lines[-1] == f"python {name}.py"


def test_a_page_that_shows_something_else_is_found():
    written = "diverge: a (aten.a)\n  max 0.41 where 2e-07 is noise\nvalues: 3 ok\n"
    assert fits("diverge: a (aten.a)\n...\nvalues: 3 ok\n", written)
    assert fits("diverge: a\n  (aten.a) max 0.4 where 1e-07 is noise\n...\n", written)
    assert not fits("diverge: a (aten.a)\n...\nvalues: 4 ok\n", written)
    assert not fits("diverge: a (aten.a)\n  max 0.8 where 2e-07 is noise\n...\n", written)
    assert not fits("diverge: b (aten.a)\n...\n", written)
