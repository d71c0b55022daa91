"""Files of the cache: whole or none, whatever stands there, whoever else writes."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
from pathlib import Path

import onnx
import pytest
import torch

from dort_compare.cache import Entry, Store, folder, store
from dort_compare.cache.entry import DamagedEntryError
from dort_compare.signature import GraphInput, GraphOutput, Signature

KEY, OTHER = "a" * 64, "b" * 64
SIGNATURE = Signature((GraphInput("x", torch.float32),), (GraphOutput("y", dtype=torch.float32),))


def model(inputs=("x",), outputs=("y",), constant=None):
    value = [onnx.helper.make_tensor_value_info(name, 1, [2]) for name in (*inputs, *outputs)]
    nodes = [onnx.helper.make_node("Neg", [inputs[0]], [name]) for name in outputs]
    graph = onnx.helper.make_graph(nodes, "g", value[: len(inputs)], value[len(inputs) :], constant and [constant])
    return onnx.helper.make_model(graph).SerializeToString()


ENTRY = Entry(KEY, "forward", 7, model())


@pytest.fixture
def kept(tmp_path):
    made = Store(tmp_path / "deep/er")
    made.write(ENTRY)
    return made


def test_what_is_written_is_read(kept):
    assert kept.read(KEY) == ENTRY
    assert kept.read(OTHER) is None
    assert [path.name for path in kept.folder.iterdir()] == [KEY]
    assert kept.read(KEY).model_for(SIGNATURE).graph.inputs[0].name == "x"


def test_an_entry_takes_the_place_of_another(kept):
    other = Entry(KEY, "backward", 8, b"else")
    kept.write(other)
    assert kept.read(KEY) == other


DATA = ENTRY.to_bytes()
DAMAGE = {
    "empty": b"",
    "truncated": DATA[:-1],
    "header only": DATA[: DATA.index(b"{")],
    "longer": DATA + b"\0",
    "foreign": b"PK\3\4" + bytes(400),
    "another version": DATA.replace(b"cache 1", b"cache 2"),
    "another key": Entry(OTHER, "forward", 7, model()).to_bytes(),
    "deep": Entry(KEY, "forward", 7).to_bytes().split(b"{")[0] + b"[" * 100_000,
    **{f"bit {i} flipped": DATA[:i] + bytes([DATA[i] ^ 1]) + DATA[i + 1 :] for i in (0, 25, 90, 100, len(DATA) - 1)},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_none_and_can_be_written_again(kept, damage):
    (kept.folder / KEY).write_bytes(DAMAGE[damage])
    assert kept.read(KEY) is None
    kept.write(ENTRY)
    assert kept.read(KEY) == ENTRY


@pytest.mark.parametrize("about", ['{"key": "a"}', "[]", "3", '{"key": 1, "phase": [], "nodes": {}}', "\xff"])
def test_a_line_that_says_something_else(about):
    import hashlib

    rest = about.encode("latin-1") + b"\n"
    data = DATA[:21] + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest
    with pytest.raises(DamagedEntryError, match="no entry of this version"):
        Entry.of(data)


def elsewhere():
    tensor = onnx.TensorProto(name="c", data_type=1, dims=[2], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    return tensor


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff" * 9, "cannot be read"),
        (model(("other",)), "takes other inputs"),
        (model(("x", "z")), "takes other inputs"),
        (model(outputs=("z",)), "returns other values"),
        (model(constant=elsewhere()), "in another file"),
    ],
)
def test_a_model_that_is_not_the_graphs(data, reason):
    with pytest.raises(DamagedEntryError, match=reason):
        Entry(KEY, "forward", 7, data).model_for(SIGNATURE)


def test_neither_links_nor_folders_are_read(kept, tmp_path):
    (tmp_path / "far").write_bytes(Entry(OTHER, "forward", 7).to_bytes())
    (kept.folder / OTHER).symlink_to(tmp_path / "far")
    assert kept.read(OTHER) is None
    kept.write(Entry(OTHER, "forward", 9))
    assert Entry.of((tmp_path / "far").read_bytes()).nodes == 7
    assert kept.read(OTHER).nodes == 9
    (kept.folder / ("c" * 64)).mkdir()
    assert kept.read("c" * 64) is None


def test_a_large_entry_is_neither_written_nor_read(kept, monkeypatch):
    monkeypatch.setattr(store, "LARGEST", len(DATA) - 1)
    assert kept.read(KEY) is None
    kept.write(Entry(OTHER, "forward", 7, model()))
    assert not (kept.folder / OTHER).exists()


# Where nothing can be written.


@pytest.fixture
def warnings(caplog):
    store._warn_once.cache_clear()
    return lambda: [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_folder_below_a_file_is_told_once(tmp_path, warnings):
    (tmp_path / "file").write_text("")
    for _ in range(2):
        Store(tmp_path / "file/cache").write(ENTRY)
        assert Store(tmp_path / "file/cache").read(KEY) is None
    (warning,) = warnings()
    assert "Not a directory" in warning
    assert "cache=False" in warning
    assert "DORT_COMPARE_CACHE_DIR" in warning


def test_a_file_where_the_folder_is_to_be(tmp_path, warnings):
    (tmp_path / "file").touch()
    Store(tmp_path / "file").write(ENTRY)
    assert "it is no folder" in warnings()[0]


def test_a_full_disk_leaves_nothing_behind(tmp_path, warnings, monkeypatch):
    def full(self, data):
        Path(self).open("wb").close()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    Store(tmp_path).write(ENTRY)
    assert list(tmp_path.iterdir()) == []
    assert "No space left on device" in warnings()[0]


def test_a_user_without_a_home(warnings, monkeypatch):
    monkeypatch.delenv(folder.FOLDER_VARIABLE)
    monkeypatch.setattr(folder, "user_cache_path", lambda *_, **__: Path("~/.cache/dort-compare"))
    Store(folder.default_folder()).write(ENTRY)
    assert "no home folder" in warnings()[0]
    assert not Path("~").exists()


# Several processes.


def write_and_read(where, number):
    kept = Store(where)
    for i in range(40):
        key = f"{i % 4:064x}"
        kept.write(Entry(key, "forward", number, bytes([number]) * 100_000))
        found = kept.read(key)
        if found is not None and found.model != bytes([found.nodes]) * 100_000:
            os._exit(3)
        if found is None:
            os._exit(4)


def test_several_processes_at_once(tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=write_and_read, args=(tmp_path, number)) for number in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{i:064x}" for i in range(4)]


# The folder.


def test_the_least_recently_used_goes_first(tmp_path):
    for number in range(4):
        path = tmp_path / f"{number:064x}"
        path.write_bytes(folder.MAGIC.ljust(100))
        os.utime(path, (number, number))
    (tmp_path / "notes.txt").write_bytes(bytes(1000))
    folder.trim(tmp_path, 250)
    assert {path.name[-1] for path in tmp_path.iterdir()} == {"2", "3", "t"}


def test_reading_counts_as_use(kept):
    os.utime(kept.folder / KEY, (1, 1))
    kept.read(KEY)
    assert folder.entries(kept.folder)[0].used > 1


def test_only_ours_is_cleared(kept):
    others = ["notes.txt", "A" * 64, "a" * 63, f"{KEY}.bak", ".hidden"]
    others += ["d" * 64, "e" * 64, f".{KEY}.swp"]  # as other tools name their objects by digest
    for name in others:
        (kept.folder / name).write_text("somebody else's")
    (kept.folder / ("e" * 64)).write_bytes(b"")
    (kept.folder / OTHER).mkdir()
    for left in (b"", DATA[:9], DATA):
        (kept.folder / f".{KEY}.x1y{len(left)}").write_bytes(left)
    assert [file.path.name for file in folder.clear(kept.folder)] == [KEY]
    assert {path.name for path in kept.folder.iterdir()} == {*others, OTHER}


def test_an_entry_that_is_cleared_while_it_is_written(tmp_path, monkeypatch, caplog):
    write = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", lambda path, data: (write(path, data), folder.clear(tmp_path)))
    Store(tmp_path).write(ENTRY)
    assert not caplog.records
    assert not list(tmp_path.iterdir())


def test_a_tilde_in_the_variable_is_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(folder.FOLDER_VARIABLE, "~/dort")
    assert folder.default_folder() == tmp_path / "dort"


def test_the_default_folder_is_the_platforms(monkeypatch, cache_folder):
    assert folder.default_folder() == cache_folder
    monkeypatch.delenv(folder.FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/where")
    assert folder.default_folder().name == "dort-compare"


def test_what_another_user_keeps_there_is_none_of_ours(tmp_path, monkeypatch, caplog):
    shared = Store(tmp_path)
    shared.write(Entry(OTHER, "forward", 7, model()))
    opened = Path.open

    def refused(path, *arguments, **options):
        if path.name == OTHER:
            raise PermissionError(13, os.strerror(13))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refused)
    shared.write(ENTRY)
    assert not caplog.records
    assert [file.path.name for file in folder.entries(tmp_path)] == [KEY]
