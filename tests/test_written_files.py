"""Files that a caller names: written whole, or told why not in one line."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

import dort_compare
from dort_compare.errors import UsageError
from dort_compare.files import write


def test_a_file_that_is_there_keeps_its_mode_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    path.chmod(0o640)
    write(path, "néw")
    assert path.read_text(encoding="utf-8") == "néw"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_what_it_held_is_kept_where_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    def full(self: Path, text: str, encoding: str) -> None:
        with self.open("w") as file:
            file.write(text[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UsageError, match=r"^cannot write .*report.json: No space left on device; choose another file$"):
        write(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_every_text_is_utf_8_whatever_the_machine_writes() -> None:
    """Text that is read or written without an encoding is in the one of the machine, which may know no "ö"."""
    root = Path(dort_compare.__file__).parent
    calls = [(path, line) for path in root.rglob("*.py") for line in path.read_text("utf-8").splitlines()]
    texts = [(path, line) for path, line in calls if ".read_text(" in line or ".write_text(" in line]
    assert len(texts) > 9
    assert [(path, line) for path, line in texts if "encoding=" not in line] == []


def test_a_link_stays_one(tmp_path: Path) -> None:
    path, link = tmp_path / "report.json", tmp_path / "latest.json"
    path.write_text("old")
    link.symlink_to(path)
    write(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(pipe, "text")
        assert os.read(reader, 9) == b"text"
    finally:
        os.close(reader)


def test_a_new_file_has_the_mode_of_new_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "report.json", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "report.json").stat().st_mode) == 0o640


@pytest.mark.parametrize("call", ["replace", "mkstemp"])
def test_a_file_that_no_other_can_replace_is_written_in_place(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    def refuse(*_args: object, **_given: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path if call == "replace" else tempfile, call, refuse)
    write(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
