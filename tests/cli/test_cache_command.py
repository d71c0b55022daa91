"""``dort-compare cache``: what is kept on disk, shown and removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from dort_compare.cache import Entry, Store, folder
from dort_compare.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["cache", *map(str, arguments)])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


def test_compiled_graphs_are_shown_and_cleared(capsys, cache_folder):
    assert run(capsys) == (0, f"{cache_folder}: 0 graphs, 0.0 MiB\n", "")
    torch.compile(torch.sin, backend="dort")(torch.rand(3, requires_grad=True)).sum().backward()
    Store(cache_folder).write(Entry("a" * 64, "inference", 9, refused={"fft": "no lowering", "ifft": "no lowering"}))
    status, out, _ = run(capsys)
    assert status == 0
    assert out.startswith(f"{cache_folder}: 3 graphs, 0.0 MiB\n\nlast used")
    rows = {tuple(line.split()[2:5]) for line in out.splitlines()[4:]}
    assert {row[0] for row in rows} == {"forward", "backward", "inference"}
    assert ("inference", "9", "2") in rows
    assert run(capsys, "--clear") == (0, f"removed 3 graphs, 0.0 MiB from {cache_folder}\n", "")
    assert list(cache_folder.iterdir()) == []


def test_a_folder_of_ones_own_keeps_what_is_not_ours(capsys, tmp_path):
    Store(tmp_path).write(Entry("a" * 64, "forward", 9))
    (tmp_path / "thesis.tex").write_text("")
    assert run(capsys, "--folder", tmp_path)[1].startswith(f"{tmp_path}: 1 graph,")
    assert run(capsys, "--clear", "--folder", tmp_path)[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_entry_that_cannot_be_read_is_shown_and_cleared(capsys, tmp_path):
    (tmp_path / ("a" * 64)).write_bytes(folder.MAGIC + b"7\n\x1b[2J" * 100)
    assert run(capsys, "--folder", tmp_path)[1].splitlines()[4].split()[2] == "unreadable"
    assert run(capsys, "--folder", tmp_path, "--clear")[1].startswith("removed 1 graph,")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("clear", [(), ("--clear",)])
def test_a_wrong_folder_is_one_line(capsys, tmp_path, clear, monkeypatch):
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file", tmp_path / "nowhere"):
        status, out, err = run(capsys, "--folder", wrong, *clear)
        assert (status, out) == (2, "")
        assert err == f"dort-compare: {wrong} is no folder; name the one that was given as the option cache\n"
    monkeypatch.setenv(folder.FOLDER_VARIABLE, str(tmp_path / "file"))
    status, _, err = run(capsys, *clear)
    assert status == 2
    assert err == f"dort-compare: {tmp_path / 'file'}: Not a directory; name another folder with --folder\n"


def test_an_entry_that_cannot_be_removed_is_one_line(capsys, tmp_path, monkeypatch):
    def refuse(self, **_):
        raise PermissionError(13, os.strerror(13))

    Store(tmp_path).write(Entry("a" * 64, "forward", 9))
    monkeypatch.setattr(Path, "unlink", refuse)
    status, _, err = run(capsys, "--clear", "--folder", tmp_path)
    assert (status, err) == (2, f"dort-compare: {tmp_path}: Permission denied; name another folder with --folder\n")


def test_of_many_those_are_shown_that_were_used_last(capsys, tmp_path):
    for i in range(25):
        Store(tmp_path).write(Entry(f"{i:064x}", "forward", i))
        os.utime(tmp_path / f"{i:064x}", (i, i))
    few, every = (run(capsys, "--folder", tmp_path, *more)[1].splitlines() for more in ((), ("--all",)))
    assert [line.split()[3] for line in few[4:-1]] == [str(i) for i in range(24, 4, -1)]
    assert few[-1] == "and 5 more; --all shows them"
    assert len(every[4:]) == 25
