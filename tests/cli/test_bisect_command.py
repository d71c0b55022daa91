"""``dort-compare bisect``: exit status, text and JSON, and one line for a wrong call."""

from __future__ import annotations

import json

import onnx
import pytest
import torch
from torch import nn

import dort_compare
from dort_compare.cli import main
from dort_compare.lowering import registered, registry

aten = torch.ops.aten


class Flip(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin().flip(0) * 2


class Quotient(nn.Module):
    """Of zeros, by what float16 rounds to zero; ONNX Runtime leaves that rounding out."""

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return z[:, :-1] / ((z[:, -1:] + 1) * 1e-15)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["bisect", *map(str, arguments)])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


@pytest.fixture
def dump(tmp_path):
    dort_compare.compare(Flip(), (torch.rand(6, 2, requires_grad=True),), backward=True, dump=tmp_path / "dump")
    return tmp_path / "dump"


def by_a_descending_range(op, x, dims):
    """What GatherToSliceFusion takes for a slice."""
    zero = op.cast(op.Mul(op.ReduceMax(x, keepdims=0), 0.0), torch.int64)
    last = op.Add(zero, op.const(x.shape[0] - 1, torch.int64))
    return op.Gather(x, op.Range(last, op.const(-1, torch.int64), op.const(-1, torch.int64)), axis=0)


def test_no_departure_is_status_0(capsys, dump):
    status, out, _ = run(capsys, dump)
    assert status == 0
    assert [line.split(":")[0] for line in out.splitlines()] == ["model_0", "model_1"]
    assert all(": no optimizer departs; " in line for line in out.splitlines())


def test_a_departure_is_status_1_and_named_with_the_fx_node(capsys, tmp_path, monkeypatch):
    assert aten.flip.default in registered()
    monkeypatch.setitem(registry._TABLE, aten.flip.default, by_a_descending_range)
    dort_compare.compare(Flip(), (torch.rand(6, 2),), dump=tmp_path / "dump")
    status, out, _ = run(capsys, tmp_path / "dump", "--json", tmp_path / "found.json")
    assert status == 1
    assert "model_0: departs from level extended on: flip made by " in out
    assert "  GatherToSliceFusion: flip made by " in out
    assert "in place of FX flip: shape (0, 2) instead of (6, 2)" in out
    graph = json.loads((tmp_path / "found.json").read_text())["graphs"]["model_0"]
    assert graph["verdict"] == "diverge"
    assert [each["optimizer"] for each in graph["optimizers"]] == ["GatherToSliceFusion"]
    assert graph["optimizers"][0]["departure"]["fused"] == ["flip"]


@pytest.mark.usefixtures("as_onnx_runtime_casts")
def test_a_departure_with_all_optimizers_off_is_status_1_and_said_plainly(capsys, tmp_path):
    z = torch.zeros(2, 4, dtype=torch.float16)
    dort_compare.compare(Quotient(), (z,), autocast=torch.float16, dump=tmp_path / "dump")
    status, out, _ = run(capsys, tmp_path / "dump")
    assert status == 1
    text = " ".join(out.split())
    assert (
        "model_0: departs with all optimizers off: div made by Cast, Div, Cast in place of FX mul, div: 6 NaN" in text
    )
    assert "changes the model even then, and cannot be switched off: RemoveDuplicateCastTransformer, Cast" in text
    assert "model_0: no optimizer departs; " in text


def test_one_graph_and_another_model_in_its_place(capsys, dump, tmp_path):
    model = onnx.load(dump / "model_0.onnx")
    next(node for node in model.graph.node if node.op_type == "Sin").op_type = "Cos"
    onnx.save(model, tmp_path / "other.onnx")
    status, out, _ = run(capsys, dump, "--graph", 0, "--model", tmp_path / "other.onnx")
    assert (status, out.split(":")[0]) == (0, "model_0")
    status, out, _ = run(capsys, dump, "--graph", "model_1")
    assert (status, out.split(":")[0]) == (0, "model_1")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--graph", "7"], "has no graph '7'; choose one of model_0, model_1"),
        (
            ["--model", "other.onnx"],
            "other.onnx can stand for one graph only; choose it with --graph: ",
        ),
        (["--graph", "0", "--model", "/no/such.onnx"], "/no/such.onnx cannot be read"),
        (["--json", "/no/such/folder/found.json"], "cannot write /no/such/folder/found.json"),
    ],
)
def test_a_wrong_call_is_one_line_and_status_2(capsys, dump, flags, message):
    status, out, err = run(capsys, dump, *flags)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_dump_that_cannot_be_used_is_one_line_and_status_2(capsys, dump, tmp_path):
    assert run(capsys, tmp_path)[::2] == (
        2,
        f"dort-compare: {tmp_path} holds no readable dump: its manifest.json is missing or damaged; "
        "compare(..., dump=FOLDER) writes a dump\n",
    )
    (dump / "model_0.inputs.safetensors").write_bytes(b"cut")
    status, _, err = run(capsys, dump)
    assert (status, err.count("\n")) == (2, 1)
    assert "model_0.inputs.safetensors cannot be read" in err


def test_a_model_of_other_inputs_and_one_that_does_not_run(capsys, dump, tmp_path):
    model = onnx.load(dump / "model_0.onnx")
    other = onnx.ModelProto()
    other.CopyFrom(model)
    other.graph.input[0].name = "somebody"
    onnx.save(other, tmp_path / "other.onnx")
    status, _, err = run(capsys, dump, "--graph", 0, "--model", tmp_path / "other.onnx")
    assert (status, err.count("\n")) == (2, 1)
    assert "other.onnx reads somebody, for which the dump holds no value" in err
    next(node for node in model.graph.node if node.op_type == "Sin").op_type = "NoSuchOp"
    onnx.save(model, tmp_path / "other.onnx")
    status, _, err = run(capsys, dump, "--graph", 0, "--model", tmp_path / "other.onnx")
    assert (status, err.count("\n")) == (2, 1)
    assert "No Op registered for NoSuchOp" in err
