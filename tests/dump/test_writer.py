"""A dump: what it holds, that it is never half written, and whose it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from dort_compare import DebugBackend
from dort_compare.dump import DumpWriter
from dort_compare.errors import DumpError

EMPTY = ir.Model(ir.Graph([], [], nodes=[], name="empty"), ir_version=10)


def train(dump: Path, **options: Any) -> DebugBackend:
    backend = DebugBackend(dump=dump, **options)
    torch._dynamo.reset()
    torch.compile(nn.Linear(3, 2), backend=backend)(torch.randn(4, 3)).sum().backward()
    return backend


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_training_step_leaves_two_graphs_and_a_complete_manifest(tmp_path: Path) -> None:
    backend = train(tmp_path / "deep" / "dump")
    folder = tmp_path / "deep" / "dump"
    endings = ("fx.json", "inputs.safetensors", "onnx", "txt")
    assert names(folder) == ["manifest.json", *(f"model_{n}.{ending}" for n in (0, 1) for ending in endings)]
    found = manifest(folder)
    assert found["schema"] == 2
    assert [entry["phase"] for entry in found["graphs"].values()] == ["forward", "backward"]
    listed = {entry[key] for entry in found["graphs"].values() for key in ("onnx", "fx", "graph", "inputs")}
    first, second = (entry["run"] for entry in found["graphs"].values())
    assert first < second
    assert listed == set(names(folder)) - {"manifest.json"}
    for n, graph in enumerate(backend.graphs):
        assert onnx.load(folder / f"model_{n}.onnx") == graph.onnx_model
        text = (folder / f"model_{n}.txt").read_text()
        assert all(node.name in text for node in graph.graph_module.graph.nodes if node.op != "output")
        inputs = load_file(folder / f"model_{n}.inputs.safetensors")
        assert inputs.keys() == graph.named_inputs().keys()
        assert all(torch.equal(inputs[name], value) for name, value in graph.named_inputs().items())


def test_only_the_first_run_is_dumped(tmp_path: Path) -> None:
    backend = DebugBackend(dump=tmp_path, max_runs=3)
    compiled = torch.compile(lambda x: x * 2, backend=backend)
    for value in (1.0, 2.0):
        compiled(torch.full((3,), value))
    assert torch.equal(next(iter(load_file(tmp_path / "model_0.inputs.safetensors").values())), torch.ones(3))


def test_a_dump_of_this_process_goes_on(tmp_path: Path) -> None:
    train(tmp_path)
    train(tmp_path)
    assert list(manifest(tmp_path)["graphs"]) == ["model_0", "model_1", "model_2", "model_3"]


def test_prefixes_are_numbered_apart(tmp_path: Path) -> None:
    for prefix in ("model", "model_a", "model"):
        train(tmp_path, dump_prefix=prefix)
    assert list(manifest(tmp_path)["graphs"]) == [
        "model_0", "model_1", "model_a_0", "model_a_1", "model_2", "model_3",
    ]  # fmt: skip


def test_writers_of_one_folder_do_not_overwrite_each_other(tmp_path: Path) -> None:
    first, second = DumpWriter.in_folder(tmp_path), DumpWriter.in_folder(tmp_path)
    graph = torch.fx.symbolic_trace(nn.Identity())
    written = [writer.add_graph(EMPTY, graph, "inference") for writer in (first, second, first)]
    assert written == list(manifest(tmp_path)["graphs"]) == ["model_0", "model_1", "model_2"]


def test_a_dump_of_another_process_is_refused_and_left_alone(tmp_path: Path) -> None:
    begin = (
        "import sys, pathlib; from dort_compare.dump import DumpWriter; DumpWriter.in_folder(pathlib.Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", begin, tmp_path], check=True)
    before = (tmp_path / "manifest.json").read_text()
    with pytest.raises(DumpError, match="holds a dump already; remove it or choose another folder"):
        DebugBackend(dump=tmp_path)
    assert names(tmp_path) == ["manifest.json"]
    assert (tmp_path / "manifest.json").read_text() == before


@pytest.mark.parametrize("content", ["", "{", "[]", '{"graphs": {}}'])
def test_a_damaged_manifest_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(DumpError, match="missing or damaged") as caught:
        DebugBackend(dump=tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_where_the_folder_should_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DumpError, match="cannot make the dump folder") as caught:
            DebugBackend(dump=folder)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DumpError, match="choose a folder that is writable"):
        DebugBackend(dump=tmp_path)


def test_a_foreign_file_is_not_overwritten(tmp_path: Path) -> None:
    writer = DumpWriter.in_folder(tmp_path)
    (tmp_path / "model_0.onnx").write_text("mine")
    with pytest.raises(DumpError, match=r"model_0\.onnx exists already and is not overwritten"):
        writer.add_graph(EMPTY, torch.fx.symbolic_trace(nn.Identity()), "inference")
    assert (tmp_path / "model_0.onnx").read_text() == "mine"


def test_nothing_is_written_outside_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = tmp_path / "caller"
    caller.mkdir()
    monkeypatch.chdir(caller)
    train(tmp_path / "dump")
    assert names(caller) == []
    assert names(tmp_path) == ["caller", "dump"]


INPUTS = {
    "bfloat16": torch.randn(3).bfloat16(),
    "float16": torch.randn(3).half(),
    "float64": torch.randn(3).double(),
    "bool": torch.tensor([True, False]),
    "int64": torch.tensor([2**62 + 1]),
    "scalar": torch.tensor(1.5),
    "empty": torch.empty(0, 3),
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "grad": torch.ones(2, requires_grad=True),
    "nan": torch.tensor([float("nan"), float("inf")]),
}


def test_inputs_of_every_kind_come_back_from_safetensors(tmp_path: Path) -> None:
    shared = torch.arange(6.0)
    inputs: dict[str, Any] = {**INPUTS, "size": 7, "shared": shared, "shared_too": shared[2:]}
    writer = DumpWriter.in_folder(tmp_path)
    name = writer.add_graph(EMPTY, torch.fx.symbolic_trace(nn.Identity()), "inference")
    writer.add_inputs(name, inputs)
    loaded = load_file(tmp_path / manifest(tmp_path)["graphs"][name]["inputs"])
    assert loaded.keys() == inputs.keys()
    for key, value in inputs.items():
        torch.testing.assert_close(loaded[key], torch.as_tensor(value).detach(), rtol=0, atol=0, equal_nan=True)
