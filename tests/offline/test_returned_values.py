"""What a model returns in the place of a graph's results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from of_function import Of
from other_models import bare, own, run, saved
from torch import nn

from dort_compare import compare
from dort_compare.offline import check


def without_output(model: onnx.ModelProto) -> None:
    del model.graph.output[0]


@pytest.mark.parametrize("which", [None, 0])
def test_a_model_that_returns_less_does_not_agree(copy: Path, which: int | None) -> None:
    model = own(copy)
    result = model.graph.output[0].name
    without_output(model)
    onnx.save(model, copy / "model_0.onnx")
    report = check(copy, which)
    assert report.verdict == "diverge"
    assert [cause.fx_node for cause in report.causes] == [result]
    assert report.causes[0].reason.endswith(f"output or gradient {result} is not compared")


@pytest.fixture(scope="module")
def two_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two") / "dump"
    compare(Of(lambda x: (x.exp(), x.tanh(), x.tanh().t())), (torch.randn(4, 4),), dump=folder)
    return folder


def test_a_model_that_computes_an_output_and_does_not_return_it_diverges(two_results: Path, tmp_path: Path) -> None:
    model = own(two_results)
    del model.graph.output[1:]
    report = check(two_results, 0, model=saved(model, tmp_path))
    assert report.verdict == "diverge"
    assert [(cause.fx_node, cause.reason) for cause in report.causes] == [
        ("tanh", "the ONNX model does not return tanh")
    ]


def test_a_model_that_does_not_return_what_is_saved_for_backward_diverges(dump: Path, tmp_path: Path) -> None:
    model = own(dump)
    saved_name = model.graph.output[-1].name
    del model.graph.output[-1:]
    report = check(dump, 0, model=saved(model, tmp_path))
    assert [cause.reason for cause in report.causes] == [f"the ONNX model does not return {saved_name}"]


def test_a_model_that_returns_more_agrees(two_results: Path, tmp_path: Path) -> None:
    model = own(two_results)
    model.graph.node.append(onnx.helper.make_node("Neg", ["exp"], ["more"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, [4, 4]))
    assert check(two_results, 0, model=saved(model, tmp_path)).verdict == "agree"


def test_an_output_of_another_shape_departs(two_results: Path, tmp_path: Path) -> None:
    """A value in between would be compared in ours."""
    model = bare(own(two_results))
    node = next(node for node in model.graph.node if node.output[0] == "exp")
    node.output[0] = "before"
    model.graph.initializer.append(onnx.numpy_helper.from_array(torch.tensor([2, 2, 4]).numpy(), "sizes"))
    model.graph.node.append(onnx.helper.make_node("Reshape", ["before", "sizes"], ["exp"]))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    report = check(two_results, 0, model=saved(model, tmp_path))
    assert [(cause.fx_node, cause.reason) for cause in report.causes] == [("exp", "shape (2, 2, 4) instead of (4, 4)")]


def test_outputs_in_another_order_are_refused(
    two_results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = own(two_results)
    outputs = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in model.graph.output]
    del model.graph.output[:]
    model.graph.output.extend([outputs[1], outputs[0], *outputs[2:]])
    status, out, err = run(capsys, two_results, "--graph", 0, "--model", saved(model, tmp_path))
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert "other.onnx returns tanh, exp" in err
    assert "in this order, the graph exp, tanh" in err
    assert err.endswith("give it that order\n")


@pytest.mark.parametrize("kept", ["sin", "sin_1"])
@pytest.mark.parametrize(("function", "wrong"), [(torch.Tensor.abs, []), (torch.Tensor.neg, ["sin_1"])])
def test_what_a_model_returns_several_times_stands_for_each_output(
    kept: str, function: Callable[[torch.Tensor], torch.Tensor], wrong: list[str], tmp_path: Path
) -> None:
    """Optimizers that merge equal values leave such models."""
    dump = tmp_path / "dump"
    compare(Of(lambda x: (x.sin(), x.cos(), function(x).sin())), (torch.rand(4, 4),), dump=dump)
    model = own(dump)
    (sin,) = (node for node in model.graph.node if node.output[0] == "sin")
    model.graph.node.remove(next(node for node in model.graph.node if node.output[0] == "sin_1"))
    sin.output[0] = kept
    for value in model.graph.output:
        value.name = "cos" if value.name == "cos" else kept
    report = check(dump, model=saved(model, tmp_path))
    assert [cause.fx_node for cause in report.causes] == wrong, str(report)


def test_of_many_outputs_the_first_in_another_place_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Many(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple((x * number).sin() for number in range(7))

    compare(Many(), (torch.randn(3),), dump=tmp_path / "dump")
    model = own(tmp_path / "dump")
    outputs = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in model.graph.output]
    del model.graph.output[:]
    model.graph.output.extend([*outputs[:5], outputs[6], outputs[5]])
    _, _, err = run(capsys, tmp_path / "dump", "--model", saved(model, tmp_path))
    assert "other.onnx returns sin_6, sin_5 in this order, the graph sin_5, sin_6: who" in err


@pytest.mark.parametrize("returned", ["exp", "t"])
def test_what_a_square_model_returns_is_told_by_its_name(tmp_path: Path, returned: str) -> None:
    """Ours returns the exponential, the graph its transpose."""
    compare(Of(lambda x: x.exp().t()), (torch.randn(4, 4),), dump=tmp_path / "dump")
    other = bare(own(tmp_path / "dump"))
    other.graph.output[0].name = returned
    report = check(tmp_path / "dump", model=saved(other, tmp_path))
    assert report.verdict == "agree", str(report)
