"""Models of others in the place of a dump's, which hand values on under other names than ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
import onnxscript.optimizer
import pytest
import torch
from of_function import Of
from onnx import helper
from torch import Tensor

from dort_compare import Report, compare
from dort_compare.offline import check


def product(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = x @ w
    return y, y.view(-1)[1:].clone()


def handed_on(model: onnx.ModelProto, by: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """The product and what reads it under another name, and ``by`` what the product is returned."""
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = ["raw" if name == "mm" else name for name in names]
    model.graph.node.extend(by)
    return model


def checked(tmp_path: Path, model: onnx.ModelProto) -> Report:
    onnx.save(model, tmp_path / "other.onnx")
    return check(tmp_path / "dump", graph=0, model=tmp_path / "other.onnx")


def test_a_product_that_is_handed_on_under_its_name_agrees(tmp_path: Path) -> None:
    """What reads it by another name is judged with it, by the noise of a product."""
    torch.manual_seed(0)
    compare(Of(product), (torch.randn(8, 32), torch.randn(32, 8)), dump=tmp_path / "dump")
    own = onnx.load(tmp_path / "dump" / "model_0.onnx")
    report = checked(tmp_path, handed_on(own, [helper.make_node("Identity", ["raw"], ["mm"])]))
    assert report.verdict == "agree", str(report)
    assert {row.status for row in report.rows} == {"ok"}


def test_a_product_that_is_made_a_second_time_agrees(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Of(lambda x, w: (y := x @ w).exp() + (y - y.amax(1, keepdim=True)))
    compare(model, (torch.randn(8, 32), torch.randn(32, 8)), dump=tmp_path / "dump")
    other = onnx.load(tmp_path / "dump" / "model_0.onnx")
    place, product = next((i, node) for i, node in enumerate(other.graph.node) if node.op_type == "MatMul")
    second = onnx.NodeProto()
    second.CopyFrom(product)
    second.name, second.output[0] = "second", "mm_again"
    for node in other.graph.node:
        if node.op_type == "Sub":
            node.input[0] = "mm_again"
    other.graph.node.insert(place + 1, second)
    report = checked(tmp_path, other)
    assert {row.status for row in report.rows} == {"ok"}, str(report)


def test_a_fault_on_the_way_to_an_output_is_named_there_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    compare(Of(product), (torch.randn(8, 32), torch.randn(32, 8)), dump=tmp_path / "dump")
    own = onnx.load(tmp_path / "dump" / "model_0.onnx")
    report = checked(tmp_path, handed_on(own, [helper.make_node("Neg", ["raw"], ["mm"])]))
    assert [cause.fx_node for cause in report.causes] == ["mm"], str(report)


@pytest.mark.parametrize("is_turned", [False, True])
def test_a_copy_that_an_optimizer_takes_away_is_known_by_its_name(tmp_path: Path, *, is_turned: bool) -> None:
    model = Of(lambda x: x.sin().clone().t() if is_turned else x.sin().clone())
    compare(model, (torch.randn(3, 4),), dump=tmp_path / "dump")
    other = onnxscript.optimizer.optimize(onnx.load(tmp_path / "dump" / "model_0.onnx"))
    assert [node.op_type for node in other.graph.node] == ["Sin"]
    report = checked(tmp_path, other)
    assert report.verdict == "agree", str(report)
    assert {row.fx_node: row.status for row in report.rows}.items() >= {"sin": "ok", "clone": "ok"}.items()
