"""A dump that is damaged, edited or hostile ends in one line and status 2, and nothing of it is run."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dort_compare import compare
from dort_compare.cli import main
from dort_compare.dump import graphs_in
from dort_compare.errors import DumpError

KINDS = (
    "manifest.json",
    "model_0.onnx",
    "model_0.fx.json",
    "model_0.constants.safetensors",
    "model_0.inputs.safetensors",
)
Node = dict[str, Any]


class Net(nn.Module):
    """One graph with a constant and an input that is not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.relu()) * torch.tensor([1.0, 2.0, 3.0, 4.0])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "dump"
    torch.manual_seed(0)
    with torch.no_grad():
        compare(Net(), (torch.randn(3, 5).t(),), dump=folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted((*KINDS, "model_0.txt"))
    return folder


@pytest.fixture
def dump(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "dump"))


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., str]:
    """``refused(dump)``: the line with which ``check`` gives up; nothing else is said, and no file appears."""

    def check(dump: Path, *flags: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SystemExit) as stopped:
            main(["check", str(dump), *flags])
        captured = capfd.readouterr()
        assert stopped.value.code == 2, captured.out
        assert captured.out == ""
        assert captured.err.startswith("dort-compare: ")
        assert captured.err.count("\n") == 1
        assert captured.err[:-1].isprintable()
        assert len(captured.err) < 2000
        assert sorted(tmp_path.rglob("*")) == before
        return captured.err

    return check


def test_the_dump_is_good_before_it_is_made_bad(dump: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["check", str(dump)])
    assert stopped.value.code == 0


# Files.


@pytest.mark.parametrize("file", KINDS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.97])
def test_truncated(dump: Path, refused: Callable[..., str], file: str, share: float) -> None:
    content = (dump / file).read_bytes()
    (dump / file).write_bytes(content[: int(share * len(content))])
    refused(dump)


@pytest.mark.parametrize("file", KINDS)
def test_missing_or_replaced(dump: Path, refused: Callable[..., str], file: str) -> None:
    content = (dump / file).read_bytes()
    (dump / file).unlink()
    refused(dump)
    (dump.parent / "elsewhere").write_bytes(content)
    (dump / file).symlink_to(dump.parent / "elsewhere")
    assert "missing" in refused(dump)
    (dump / file).unlink()
    (dump / file).mkdir()
    refused(dump)


@pytest.mark.parametrize("file", KINDS)
@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"{}", b"[]", b"null", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 9999]
)
def test_something_else(dump: Path, refused: Callable[..., str], file: str, content: bytes) -> None:
    (dump / file).write_bytes(content)
    refused(dump)


def test_no_dump_at_all(tmp_path: Path, refused: Callable[..., str]) -> None:
    assert "holds no readable dump" in refused(tmp_path)
    assert "there is no folder" in refused(tmp_path / "nowhere")


# The manifest.


def edit_manifest(dump: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    manifest = json.loads((dump / "manifest.json").read_text())
    change(manifest)
    (dump / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("version", [1, 3, "2", None, [], "\x1b[31m"])
def test_another_version(dump: Path, refused: Callable[..., str], version: object) -> None:
    edit_manifest(dump, lambda manifest: manifest.update(schema=version))
    assert "is a dump of version" in refused(dump)


@pytest.mark.parametrize(
    "graphs", [{}, [], None, {"model_0": None}, {"model_0": []}, {"model_0": {}}, {"model_0": "x"}]
)
def test_graphs_that_are_none(dump: Path, refused: Callable[..., str], graphs: object) -> None:
    edit_manifest(dump, lambda manifest: manifest.update(graphs=graphs))
    refused(dump)


@pytest.mark.parametrize(
    "found", [5, {}, [1], [{}], [{"phase": "x"}], [{"phase": ["forward"]}], [{"phase": "forward"}], [{"fx_node": 1}],
              [{"phase": "sideways", "fx_node": "mm", "target": "aten.mm", "source": "", "reason": "none"}]],
)  # fmt: skip
def test_fallbacks_that_are_none(dump: Path, refused: Callable[..., str], found: object) -> None:
    edit_manifest(dump, lambda manifest: manifest.update(fallbacks=found))
    assert "damaged" in refused(dump)


@pytest.mark.parametrize(
    "entry",
    [
        {"phase": "sideways"}, {"phase": None}, {"phase": ["forward"]}, {"run": "0"}, {"run": True}, {"run": 1.5},
        {"number": "1"}, {"number": None},
        {"compile_id": 7}, {"unreadable": "it is not"}, {"unreadable": 1}, {"input_names": 7},
        {"input_names": {"a": 1}}, {"input_names": "abc"}, {"modules": 7}, {"modules": {"a": None}},
        {"is_piece": 1}, {"constants": None, "phase": 0},
    ],
)  # fmt: skip
def test_an_edited_entry(dump: Path, refused: Callable[..., str], entry: dict[str, Any]) -> None:
    edit_manifest(dump, lambda manifest: manifest["graphs"]["model_0"].update(entry))
    refused(dump)


@pytest.mark.parametrize(
    "name",
    ["../model_0", "/etc/passwd", "sub/model_0", "..", ".", "", "x\n", "\x1b[31m", "a\\b", "\u202egnp"],
)
def test_a_name_that_leaves_the_folder_or_steers_a_terminal(dump: Path, refused: Callable[..., str], name: str) -> None:
    outside = dump.parent / "model_0"
    for path in dump.iterdir():
        if path.name.startswith("model_0."):
            shutil.copy(path, outside.with_name(path.name))
    edit_manifest(dump, lambda manifest: manifest.update(graphs={name: manifest["graphs"]["model_0"]}))
    assert "that is not a plain file name" in refused(dump)


# Tensors.


def with_header(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def weight(header: dict[str, Any]) -> dict[str, Any]:
    return next(entry for entry in header.values() if entry.get("shape") == [4, 3])


@pytest.mark.parametrize(
    "lie",
    [
        {"shape": [2**40, 3]}, {"shape": [4, 4]}, {"shape": [-4, -3]}, {"shape": [2**64]}, {"shape": "4"},
        {"data_offsets": [0, 2**50]}, {"data_offsets": [8, 0]}, {"data_offsets": [-8, 40]}, {"data_offsets": [0, 4]},
        {"dtype": "I32"}, {"dtype": "F64"}, {"dtype": "BF16", "shape": [8, 3]}, {"dtype": "NONE"}, {"dtype": 3},
        {"shape": [3, 4]}, {"shape": [12]}, {"shape": [1, 12]}, {"dtype": "BOOL", "shape": [16, 3]},
    ],
)  # fmt: skip
def test_a_header_that_lies(dump: Path, refused: Callable[..., str], lie: dict[str, Any]) -> None:
    with_header(dump / "model_0.inputs.safetensors", lambda header: weight(header).update(lie))
    refused(dump)


def test_a_header_of_any_length(dump: Path, refused: Callable[..., str]) -> None:
    path = dump / "model_0.inputs.safetensors"
    for length in (0, 2**62, 2**64 - 1):
        path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])
        refused(dump)


@pytest.mark.parametrize(
    "stride", [[2**40, 1], [1, 1], [-1, 5], [5], [1, 5, 7], "ab", [1.0, 5.0], {"a": 1}, [10**30, 1], 7]
)
def test_strides_that_lie(dump: Path, refused: Callable[..., str], stride: object) -> None:
    def change(header: dict[str, Any]) -> None:
        ((name, good),) = json.loads(header["__metadata__"]["strides"]).items()
        assert good == [1, 5]
        header["__metadata__"]["strides"] = json.dumps({name: stride})

    with_header(dump / "model_0.inputs.safetensors", change)
    refused(dump)


@pytest.mark.parametrize("name", ["x\x1b[31m", "../../x", "spare"])
def test_tensors_that_nobody_reads(dump: Path, refused: Callable[..., str], name: str) -> None:
    path = dump / "model_0.inputs.safetensors"
    save_file({**load_file(path), name: torch.zeros(1)}, path)
    assert "does not hold what the graph takes" in refused(dump)


# The graph.


def edit_graph(dump: Path, change: Callable[[dict[str, Node]], Any]) -> None:
    """Lets ``change`` have the nodes by name, to change or to replace."""
    path = dump / "model_0.fx.json"
    nodes = {node["name"]: node for node in json.loads(path.read_text())["nodes"]}
    changed = change(nodes)
    path.write_text(json.dumps({"nodes": changed if changed is not None else list(nodes.values())}))


def called(nodes: dict[str, Node], target: str) -> Node:
    return next(node for node in nodes.values() if node.get("target") == target)


def in_relu(**changes: Any) -> Callable[[dict[str, Node]], None]:
    return lambda nodes: called(nodes, "aten.relu.default").update(changes)


DEEP: Any = None
for _ in range(50):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "change",
    [
        in_relu(args=[{"node": "nobody"}]),
        in_relu(args=[{"node": "relu"}]),
        in_relu(args=[{"node": "mul"}]),
        in_relu(args=[{"node": 3}]),
        in_relu(args=[{"nodes": "relu"}]),
        in_relu(args=[{"device": "meta"}]),
        in_relu(args=[{"dtype": "float31"}]),
        in_relu(args=[{"dtype": "load"}]),
        in_relu(args=[{"memory_format": "float32"}]),
        in_relu(args=[{"float": "1e3"}]),
        in_relu(args=[{"slice": [1]}, 2]),
        in_relu(args=[{}]),
        in_relu(args=DEEP),
        in_relu(args={"a": 1}),
        in_relu(args="relu"),
        in_relu(args=[]),
        in_relu(args=["text"]),
        in_relu(args=[10**400]),
        in_relu(kwargs={"self": 1}),
        in_relu(kwargs={"x=1): pass\nimport os #": 1}),
        in_relu(kwargs=[1]),
        in_relu(op="call_module"),
        in_relu(op="call_method", target="numpy"),
        in_relu(op="placeholder"),
        in_relu(op="get_attr"),
        in_relu(op="get_attr", constant="__class__"),
        in_relu(op="output"),
        in_relu(op=None),
        in_relu(name="mul"),
        in_relu(name="x): import os; os.system('touch pwned') #"),
        in_relu(name="\x1b[31m"),
        in_relu(name=None),
        in_relu(val={"dtype": "float32", "shape": [2**62, 2**62], "stride": [1, 1], "device": "cpu"}),
        in_relu(val={"dtype": "float32", "shape": [-1], "stride": [1], "device": "cpu"}),
        in_relu(val={"dtype": "float32", "shape": [1, 2], "stride": [1], "device": "cpu"}),
        in_relu(val={"dtype": "float32", "shape": [1], "stride": [1], "device": "privateuseone"}),
        in_relu(val={"number": "complex", "value": 1}),
        in_relu(val={"number": "int", "value": "text"}),
        in_relu(val=7),
        in_relu(nn_module_stack=[["a"]]),
        in_relu(nn_module_stack="abc"),
        in_relu(source=["a", 1]),
        in_relu(unbacked="u0"),
        lambda nodes: [],
        lambda nodes: {"a": 1},
        lambda nodes: "nodes",
        lambda nodes: [*nodes.values(), nodes["output"]],
        lambda nodes: [*nodes.values()][:-1],
        lambda nodes: nodes["output"].update(args=[{"node": "nobody"}]),
    ],
)
def test_an_edited_graph(dump: Path, refused: Callable[..., str], change: Any) -> None:
    edit_graph(dump, change)
    refused(dump)


@pytest.mark.parametrize(
    "target",
    [
        "aten.from_file.default", "aten.relu_.default", "builtins.eval", "builtins.exec", "os.system", "subprocess.run",
        "operator.attrgetter", "torch.load", "aten.relu", "relu", "aten.__getattr__.default", ["aten.relu.default"],
        None, "\x1b]0;title\x07", "[bold]x[/bold]", "x" * 10_000,
    ],
)  # fmt: skip
def test_what_may_not_be_called_is_named(dump: Path, refused: Callable[..., str], target: object) -> None:
    edit_graph(dump, in_relu(target=target))
    assert "which graphs of a dump may not call" in refused(dump)


@pytest.mark.parametrize(
    "change",
    [
        in_relu(target="aten.addmm.default"),
        in_relu(target="aten.index_select.default"),
        in_relu(target="operator.getitem", args=[{"tuple": [1]}, 7]),
        in_relu(target="operator.truediv", args=[1, 0], val={"number": "float", "value": 1}),
        in_relu(target="aten.full.default", args=[[2**48], 1]),
        in_relu(target="aten.view.default", args=[{"node": "arg2_1"}, [7, 7]]),
    ],
)
def test_calls_that_torch_refuses(dump: Path, refused: Callable[..., str], change: Any) -> None:
    edit_graph(dump, change)
    refused(dump)


@pytest.mark.parametrize("args", [[], [[], []]])
def test_an_output_without_its_one_argument(dump: Path, refused: Callable[..., str], args: object) -> None:
    edit_graph(dump, lambda nodes: nodes["output"].update(args=args))
    assert "is damaged" in refused(dump)


def test_a_constant_that_is_not_there(dump: Path, refused: Callable[..., str]) -> None:
    save_file({"other": torch.zeros(4)}, dump / "model_0.constants.safetensors")
    assert "is damaged" in refused(dump)


# The model.


def test_constants_of_functions_are_not_read_from_elsewhere_either(dump: Path, refused: Callable[..., str]) -> None:
    (dump.parent / "secret").write_bytes(bytes(16))
    model = onnx.load(dump / "model_0.onnx")
    stolen = onnx.TensorProto(name="s", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    stolen.external_data.add(key="location", value="../secret")
    constant = onnx.helper.make_node("Constant", [], ["y"], value=stolen)
    opset = [onnx.helper.make_opsetid("", 20)]
    model.functions.append(onnx.helper.make_function("here", "f", [], ["y"], [constant], opset))
    (dump / "model_0.onnx").write_bytes(model.SerializeToString())
    assert "so it is not read" in refused(dump)
    model.functions.pop()
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(stolen)
    (dump / "model_0.onnx").write_bytes(model.SerializeToString())
    assert "so it is not read" in refused(dump)


@pytest.mark.parametrize("dims", [[2**40], [5], [-4], []])
def test_a_constant_whose_size_lies(dump: Path, refused: Callable[..., str], dims: list[int]) -> None:
    model = onnx.load(dump / "model_0.onnx")
    tensor = next(tensor for tensor in model.graph.initializer if list(tensor.dims) == [4])
    tensor.dims[:] = dims
    (dump / "model_0.onnx").write_bytes(model.SerializeToString())
    refused(dump)


def test_names_cannot_steer_a_terminal(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[31m[bold]x[/bold]\u202e"
    edit_graph(
        dump,
        lambda nodes: called(nodes, "aten.relu.default").update(
            nn_module_stack=[["1", evil, evil]], source=f"{evil}.py:7", target="aten.tanh.default"
        ),
    )
    with pytest.raises(SystemExit) as stopped:
        main(["check", str(dump)])
    out = capsys.readouterr().out
    assert stopped.value.code == 1
    assert out.replace("\n", "").isprintable()
    assert "\\x1b[31m[bold]x[/bold]\\u202e" in out
    assert out.count("[bold]x[/bold]") >= 3


def test_messages_name_the_file(dump: Path) -> None:
    (dump / "model_0.inputs.safetensors").write_bytes(b"")
    (graph,) = graphs_in(dump)
    with pytest.raises(DumpError, match=r"model_0\.inputs\.safetensors cannot be read"):
        graph.inputs(torch.fx.symbolic_trace(nn.Identity()))
