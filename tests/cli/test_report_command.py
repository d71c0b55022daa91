"""``dort-compare report``: reports that somebody wrote, one or several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dort_compare import compare
from dort_compare.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["report", *map(str, arguments)])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a small network, forward and backward."""
    file = tmp_path_factory.mktemp("right") / "report.json"
    compare(nn.Sequential(nn.Linear(3, 4), nn.SiLU()), (torch.randn(5, 3),), backward=True).to_json(file)
    return file


def edited(file: Path, into: Path, change: Any) -> Path:
    data = json.loads(file.read_text())
    change(data)
    into.write_text(json.dumps(data))
    return into


def wrong(data: dict[str, Any]) -> None:
    """As if silu had departed."""
    row = next(row for row in data["rows"] if row["target"] == "aten.silu.default")
    row.update(status="diverges", local={**row["local"], "max_abs": 1.0}, noise_floor=1e-6)
    data.update(verdict="diverge", summary="diverge: silu\x1b[31m")


def test_one_report_is_told_and_shown(capsys, right, tmp_path) -> None:
    assert run(capsys, right, "--html", tmp_path / "page.html")[0] == 0
    assert "silu" in (tmp_path / "page.html").read_text(encoding="utf-8")
    status, out, _ = run(capsys, edited(right, tmp_path / "wrong.json", wrong))
    assert (status, out) == (1, "diverge: silu\\x1b[31m\n")


def test_a_page_in_the_place_of_a_report_is_refused(capsys, right) -> None:
    before = right.read_text()
    status, _, err = run(capsys, right, "--html", right.parent / "." / right.name)
    assert (status, err.count("\n")) == (2, 1)
    assert "is read, and what it holds would be lost; choose another file" in err
    assert right.read_text() == before


def test_what_got_worse_and_better_between_two(capsys, right, tmp_path) -> None:
    bad, again = edited(right, tmp_path / "wrong.json", wrong), edited(right, tmp_path / "again.json", lambda _: None)
    status, out, _ = run(capsys, right, bad, "--html", tmp_path / "page.html")
    assert status == 1
    assert "from run 1 to 2: 1 worse, " in out
    assert max(map(len, out.splitlines())) <= 80
    assert "all with torch " in out
    assert "ok -> diverges" in out
    assert "diverge: silu\\x1b[31m" in out
    assert "aten.silu.default" in (tmp_path / "page.html").read_text(encoding="utf-8")
    status, out, _ = run(capsys, bad, right)
    assert status == 0
    assert "1 better" in out
    assert run(capsys, right, again)[0] == 0


def test_the_course_of_several(capsys, right, tmp_path) -> None:
    bad, again = edited(right, tmp_path / "wrong.json", wrong), edited(right, tmp_path / "again.json", lambda _: None)
    later = edited(bad, tmp_path / "later.json", lambda data: data["environment"].update(torch="9.9"))
    status, out, _ = run(capsys, right, bad, later, "--html", tmp_path / "page.html")
    assert status == 0  # no worse than in the run before
    lines = out.splitlines()
    runs = [line.split() for line in lines[2:5]]
    assert [each[:2] for each in runs] == [["1", right.name], ["2", bad.name], ["3", later.name]]
    departing = lines[0].index("departing")
    assert [line[departing:].split()[0] for line in lines[2:5]] == ["0", "1", "1"]
    assert "9.9" in runs[2]
    assert "from run 2 to 3: " in out
    assert "from run 1 to 3: 1 worse, " in out
    (silu,) = (line for line in lines if "ok -> diverges" in line)
    assert silu.startswith("forward 0 ")
    assert "   run 2   worse" in silu  # since which run, and from the first
    assert max(map(len, lines)) <= 100
    assert run(capsys, bad, again, later)[0] == 1
    assert run(capsys, bad, later, right)[0] == 0


def test_reports_that_cannot_be_held_against_another_are_one_line(capsys, right, tmp_path) -> None:
    bad = edited(right, tmp_path / "wrong.json", wrong)
    link = tmp_path / "link.json"
    link.symlink_to(bad)
    other = tmp_path / "other.json"
    compare(nn.Sequential(nn.Tanh(), nn.Conv1d(3, 3, 1)), (torch.randn(5, 3, 2),), backward=True).to_json(other)
    for files, words in [((right, bad, link), "is the same file"), ((right, bad, other), "is of another model")]:
        status, out, err = run(capsys, *files)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert words in err


def test_a_newer_format_is_one_line(capsys, right, tmp_path) -> None:
    newer = edited(right, tmp_path / "newer.json", lambda data: data.update(schema=2))
    for files in ((newer,), (right, newer)):
        status, out, err = run(capsys, *files)
        assert (status, out) == (2, "")
        assert err == f"dort-compare: {newer} is in format 2, newer than 1 of this dort-compare: update it\n"


def test_the_manifest_of_a_dump_is_no_newer_report(capsys, tmp_path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text('{"schema": 2, "graphs": {}}', encoding="utf-8")
    words = f"dort-compare: {manifest} is no report of dort-compare: its schema is not 1; make one with --json FILE\n"
    assert run(capsys, manifest) == (2, "", words)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(schema=0),
        lambda data: data.update(environment=[]),
        lambda data: data.pop("rows"),
        lambda data: data.update(rows=[1]),
        lambda data: data.update(verdict="<b>"),
        lambda data: data.update(precision=[]),
        lambda data: data["rows"][0].pop("fx_node"),
        lambda data: data["rows"][0].pop("inherited"),
        lambda data: data["rows"][0].update(graph="0"),
        lambda data: data["rows"][0].update(noise_floor="1"),
        lambda data: data["rows"][0]["inherited"].update(max_abs=10**400),
        lambda data: data["rows"][0].update(local={"max_abs": []}),
        lambda data: data["rows"][0].update(operands=1),
        lambda data: data["outputs"][0].update(kind=None),
        lambda data: data.update(optimized={"rows": [None]}),
    ],
)
def test_what_is_no_report_is_one_line(capsys, right, tmp_path, change) -> None:
    status, out, err = run(capsys, edited(right, tmp_path / "bad.json", change))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "is no report of dort-compare" in err or "cannot be read as a report" in err


@pytest.mark.parametrize("key", ["distance", "errors", "statuses", "more"])
def test_what_a_row_holds_beside_is_left_alone(capsys, right, tmp_path, key) -> None:
    beside = edited(right, tmp_path / "beside.json", lambda data: data["rows"][0].update({key: 1}))
    assert run(capsys, beside, "--html", tmp_path / "page.html")[::2] == (0, "")


@pytest.mark.parametrize("text", ["", "[", '{"schema": NaN}', '{"schema": 1e999}', "[" * 100_000, "\xff"])
def test_what_is_no_json_is_one_line(capsys, tmp_path, text) -> None:
    (tmp_path / "bad.json").write_bytes(text.encode("latin-1"))
    status, _, err = run(capsys, tmp_path / "bad.json")
    assert (status, err.count("\n")) == (2, 1)
    assert run(capsys, tmp_path / "missing.json")[0] == 2


def test_a_page_that_cannot_be_written_is_one_line(capsys, right, tmp_path) -> None:
    status, _, err = run(capsys, right, "--html", tmp_path)
    assert (status, err.count("\n")) == (2, 1)
