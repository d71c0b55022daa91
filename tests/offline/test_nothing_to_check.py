"""Graphs that did not run, or compute nothing."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from of_function import Of
from other_models import own, run, saved
from small_models import mlp

from dort_compare import DebugBackend, compare
from dort_compare.cli import main
from dort_compare.errors import DumpError
from dort_compare.offline import bisected, check


def test_a_graph_that_did_not_run_has_nothing_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "dump"
    backend = DebugBackend(dump=folder)
    model = mlp()
    torch.compile(model, backend=backend, dynamic=True)(torch.randn(5, 3))
    assert len(backend.graphs) == 2, "the backward graph is compiled before it runs"
    assert {row.phase for row in check(folder).rows} == {"forward"}
    status, out, _ = run(capsys, folder)
    assert (status, out.splitlines()[-1]) == (
        0,
        "not compared, for they did not run when the dump was made: model_1",
    )
    with pytest.raises(DumpError, match="holds no inputs of model_1: it did not run when the dump was made"):
        check(folder, 1)


def test_a_dump_of_the_fast_backend_has_no_inputs(tmp_path: Path) -> None:
    torch.compile(mlp(), backend="dort", options={"dump": tmp_path / "dump"})(torch.randn(5, 3))
    with pytest.raises(DumpError, match="holds no inputs of"):
        check(tmp_path / "dump")


@pytest.fixture
def handing_on(tmp_path: Path) -> Path:
    compare(Of(torch.positive), (torch.randn(3),), dump=tmp_path / "dump")
    assert not own(tmp_path / "dump").graph.node
    return tmp_path / "dump"


def test_of_a_graph_that_computes_nothing_nothing_is_compared(
    handing_on: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, handing_on)
    assert (status, out.splitlines()[0], err) == (1, "diverge: nothing was compared", "")
    ((_, found),) = bisected(handing_on)
    assert not found.departs


def test_a_model_that_computes_nothing_agrees_with_no_graph_that_does(dump: Path, tmp_path: Path) -> None:
    model = own(dump)
    del model.graph.node[:], model.graph.output[:], model.graph.value_info[:]
    report = check(dump, 0, model=saved(model, tmp_path))
    assert (report.verdict, report.causes[0].reason) == ("diverge", "nothing was compared")


def test_a_graph_that_onnx_runtime_fails_on_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare(Of(lambda x: x[[1, 0]]), (torch.randn(2, 3),), dump=tmp_path / "dump")
    model = own(tmp_path / "dump")
    index = next(tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.INT64)
    index.CopyFrom(onnx.numpy_helper.from_array(torch.full(tuple(index.dims), 99).numpy(), index.name))
    onnx.save(model, tmp_path / "dump" / "model_0.onnx")
    for command in ("check", "bisect"):
        with pytest.raises(SystemExit, match="2"):
            main([command, str(tmp_path / "dump")])
        err = capsys.readouterr().err
        assert f"graph model_0 of {tmp_path / 'dump'} cannot be run: ONNX Runtime failed" in err
        assert err.count("\n") == 1
