"""The ONNX reference evaluator as an engine: every dtype goes in and out bit for bit, and its verdict is its own."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

from dort_compare import compare
from dort_compare.cli import main
from dort_compare.errors import ExecutionError
from dort_compare.offline import check
from dort_compare.trace.onnx_evaluator import EvaluatorSession, as_numpy, from_numpy

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool], ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 2)], ids=str)
def test_tensors_go_in_and_out_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.randn(shape) * 3).to(dtype)
    if dtype.is_floating_point and tensor.numel() > 1:
        tensor.view(-1)[:2] = torch.tensor([float("nan"), -0.0])
    back = from_numpy(as_numpy(tensor))
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(back.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))
    assert as_numpy(tensor.t() if tensor.ndim == 2 else tensor).shape == tuple(reversed(shape))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU())


def test_what_is_negated_by_a_mark_alone_goes_in_negated() -> None:
    assert as_numpy(torch._neg_view(torch.tensor([1.0, -2.0]))).tolist() == [-1.0, 2.0]


@pytest.mark.parametrize("autocast", [None, torch.bfloat16, torch.float16], ids=str)
def test_a_dump_agrees_with_the_reference_too(tmp_path: Path, autocast: torch.dtype | None) -> None:
    compare(net(), (torch.randn(5, 3),), backward=True, autocast=autocast, dump=tmp_path / "dump")
    report = check(tmp_path / "dump", engine="reference")
    assert report.verdict == "agree", str(report)
    assert {row.status for row in report.rows} == {"ok"}
    assert len(report.rows) == len(check(tmp_path / "dump").rows)


def test_onnx_runtime_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ONNX Runtime that is wrong: only the reference evaluator says that the model is right."""
    from dort_compare.runtime.session import Session

    compare(net(), (torch.randn(5, 3),), dump=tmp_path / "dump")
    right = Session.run
    monkeypatch.setattr(Session, "run", lambda self, *given: [value * 2 for value in right(self, *given)])
    assert check(tmp_path / "dump").verdict == "diverge"
    assert check(tmp_path / "dump", engine="reference").verdict == "agree"


def test_what_it_lacks_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = onnx.helper.make_node("Nonsense", ["x"], ["y"], domain="com.microsoft")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "g", [value("x", 1, [1])], [value("y", 1, [1])])
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("com.microsoft", 1)]
    with pytest.raises(ExecutionError, match=r"the ONNX reference evaluator failed: .*Nonsense") as caught:
        EvaluatorSession(onnx.helper.make_model(graph, opset_imports=opsets))
    assert "\n" not in str(caught.value)
    compare(net(), (torch.randn(5, 3),), dump=tmp_path / "dump")
    model = onnx.load(tmp_path / "dump" / "model_0.onnx")
    model.graph.node[-1].op_type = "Nonsense"
    onnx.save(model, tmp_path / "other.onnx")
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(["check", str(tmp_path / "dump"), "--model", str(tmp_path / "other.onnx"), "--engine", "reference"])
    err = capsys.readouterr().err
    assert (stopped.value.code, err.count("\n")) == (2, 1)
    assert "Nonsense" in err


LOOP = """(float[3, 4] x) => (float[3, 4] z) <int64 n = {3}, float one = {1}> {
    z = Loop(n, , x) <body = outer (int64 i, bool k, c) => (bool k_out, c_out) {
        k_out = Identity(k)
        c_out = Loop(n, , c) <body = inner (int64 j, bool l, d) => (bool l_out, d_out) {
            l_out = Identity(l)
            d_out = Add(d, one)
        }>
    }>
}"""


def test_a_loop_without_a_condition_goes_round_as_often_as_it_counts() -> None:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> agraph {LOOP}')
    before = model.SerializeToString()
    (found,) = EvaluatorSession(model).run({"x": torch.zeros(3, 4)}, {"z": torch.device("cpu")})
    assert torch.equal(found, torch.full((3, 4), 9.0))
    assert model.SerializeToString() == before
