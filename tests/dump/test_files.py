"""A file is there whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dort_compare.dump.files import write_whole
from dort_compare.dump.staging import staged
from dort_compare.errors import DumpError


def test_a_file_appears_with_its_whole_content(tmp_path: Path) -> None:
    path = tmp_path / "x"

    def write(partial: Path) -> None:
        assert not path.exists()
        partial.write_text("all")

    write_whole(path, write)
    assert path.read_text() == "all"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_file_appears_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, os.strerror(1))

    monkeypatch.setattr(os, "link", refused)
    write_whole(tmp_path / "x", lambda partial: partial.write_text("all"))
    with pytest.raises(DumpError, match="exists already and is not overwritten"):
        write_whole(tmp_path / "x", lambda partial: partial.write_text("other"))
    assert (tmp_path / "x").read_text() == "all"


def test_a_file_that_cannot_be_moved_there_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(5, os.strerror(5))

    with monkeypatch.context() as failing:
        failing.setattr(Path, "replace", refused)
        with pytest.raises(DumpError, match=r"cannot write .*x: Input/output error"):
            write_whole(tmp_path / "x", lambda partial: partial.write_text("all"))
    assert not list(tmp_path.iterdir())


def test_a_dump_is_read_by_whom_new_files_are(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with staged(tmp_path / "dump") as folder:
            write_whole(folder / "x", lambda partial: partial.write_text("all"))
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("dump", "dump/x")]
    assert modes == [0o700, 0o600]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("replace", [False, True])
def test_an_interrupted_write_leaves_nothing_behind(
    tmp_path: Path, interruption: type[BaseException], replace: bool
) -> None:
    if replace:
        (tmp_path / "x").write_text("before")

    def write(partial: Path) -> None:
        partial.write_text("half")
        raise interruption

    with pytest.raises(interruption):
        write_whole(tmp_path / "x", write, replace=replace)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == ({"x": "before"} if replace else {})


def test_an_existing_file_is_replaced_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("before")
    with pytest.raises(DumpError, match="exists already and is not overwritten"):
        write_whole(path, lambda partial: partial.write_text("after"))
    assert path.read_text() == "before"
    write_whole(path, lambda partial: partial.write_text("after"), replace=True)
    assert path.read_text() == "after"


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        DumpError, match=r"cannot write .*: No such file or directory; choose a folder that is writable"
    ):
        write_whole(tmp_path / "missing" / "x", lambda partial: None)


def test_a_disk_that_fails_is_one_line(tmp_path: Path) -> None:
    def fill(_: Path) -> None:
        raise OSError(28, "No space left on device")

    for write in (fill, lambda _: save_file({"x": torch.ones(1)}, tmp_path)):  # safetensors has an error of its own
        with pytest.raises(DumpError, match=r"cannot write .*; choose a folder that is writable") as caught:
            write_whole(tmp_path / "x", write)
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


class TestStaged:
    def test_replaces_a_dump_at_the_end_of_the_block(self, tmp_path: Path) -> None:
        folder = tmp_path / "dump"
        folder.mkdir()
        (folder / "manifest.json").write_text('{"schema": 2, "graphs": {}}')
        with staged(folder) as stage:
            (stage / "new").write_text("new")
            assert (folder / "manifest.json").exists()
        assert [path.name for path in folder.iterdir()] == ["new"]
        assert [path.name for path in tmp_path.iterdir()] == ["dump"]

    def test_an_error_leaves_what_was_there(self, tmp_path: Path) -> None:
        folder = tmp_path / "dump"
        folder.mkdir()
        (folder / "manifest.json").write_text('{"schema": 2, "graphs": {}}')
        with pytest.raises(KeyboardInterrupt), staged(folder):
            raise KeyboardInterrupt
        assert [path.name for path in folder.iterdir()] == ["manifest.json"]
        assert [path.name for path in tmp_path.iterdir()] == ["dump"]

    @pytest.mark.parametrize("replaces_dumps", [True, False])
    def test_a_file_is_no_folder(self, tmp_path: Path, *, replaces_dumps: bool) -> None:
        (tmp_path / "notes").write_text("mine")
        refused = pytest.raises(DumpError, match="notes is no folder, so it is not replaced; choose another")
        with refused, staged(tmp_path / "notes", replaces_dumps=replaces_dumps):
            pass
        assert (tmp_path / "notes").read_text() == "mine"

    @pytest.mark.parametrize(
        "files",
        [
            {"thesis.tex": "mine"},
            {"manifest.json": '{"name": "a browser extension", "version": "1"}'},
            {"manifest.json": '{"schema": 2, "graphs": {}}', "thesis.tex": "mine"},
        ],
    )
    def test_a_folder_that_is_not_only_a_dump_is_not_replaced(self, tmp_path: Path, files: dict[str, str]) -> None:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        with pytest.raises(DumpError, match="so it is not replaced"), staged(tmp_path):
            pass
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files

    @pytest.mark.parametrize("exists", [True, False])
    def test_a_link_stays_one(self, tmp_path: Path, exists: bool) -> None:
        link, folder = tmp_path / "latest", tmp_path / "disk" / "dump"
        link.symlink_to(folder)
        if exists:
            folder.mkdir(parents=True)
        with staged(link) as stage:
            (stage / "new").write_text("new")
        assert link.is_symlink()
        assert [path.name for path in folder.iterdir()] == ["new"]
        assert [path.name for path in folder.parent.iterdir()] == ["dump"]

    def test_a_link_to_itself_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "loop").symlink_to("loop")
        message = r"^cannot write the folder .*loop: .*; choose another one$"
        with pytest.raises(DumpError, match=message), staged(tmp_path / "loop") as stage:
            (stage / "new").write_text("new")
        assert [path.name for path in tmp_path.iterdir()] == ["loop"]

    def test_a_swap_that_fails_brings_the_old_dump_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "dump"
        folder.mkdir()
        (folder / "manifest.json").write_text('{"schema": 2, "graphs": {}}')
        rename = Path.rename

        def fail_at_last(self: Path, target: Path) -> Path:
            if (self / "new").exists():
                raise OSError("no space left")
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", fail_at_last)
        with pytest.raises((OSError, DumpError)), staged(folder) as stage:
            (stage / "new").write_text("new")
        assert [path.name for path in folder.iterdir()] == ["manifest.json"]
        assert [path.name for path in tmp_path.iterdir()] == ["dump"]
