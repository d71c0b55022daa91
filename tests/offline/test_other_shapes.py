"""A model that holds a value in another shape."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
import torch
from other_models import bare, own, renamed, saved, statuses
from torch import nn

from dort_compare import compare
from dort_compare.offline import check


@pytest.fixture(scope="module")
def of_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network whose rows have two axes, between layers that make one of them."""
    folder = tmp_path_factory.mktemp("rows") / "dump"
    torch.manual_seed(0)
    with torch.no_grad():
        model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
        compare(model, (torch.randn(2, 5, 3),), dump=folder, target_opset=19)  # in which GELU is several nodes
    return folder


def reshapes_of(model: onnx.ModelProto, *names: str) -> dict[str, str]:
    """Which values show those named in another shape."""
    return {node.output[0]: node.input[0] for node in model.graph.node
            if node.op_type == "Reshape" and node.input[0] in names}  # fmt: skip


def without_reshapes(dump: Path) -> onnx.ModelProto:
    """The ``Reshape`` before the GELU is moved behind it, where it meets its opposite, as onnxsim does; what the GELU
    computes is declared as before."""
    model = bare(own(dump))
    gone = reshapes_of(model, "addmm", "gelu")
    nodes = [node for node in model.graph.node if node.output[0] not in gone]
    for node in nodes:
        node.input[:] = [gone.get(name, name) for name in node.input]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def shaped(model: onnx.ModelProto, name: str, shape: list[int]) -> onnx.ModelProto:
    model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    return model


@pytest.mark.parametrize("declared", [[10, 4], [2, 5, 4], None])
def test_a_value_in_another_shape_is_compared_in_ours(of_rows: Path, tmp_path: Path, declared: list[int]) -> None:
    model = without_reshapes(of_rows)
    if declared:
        shaped(model, "gelu", declared)
    report = check(of_rows, 0, model=saved(model, tmp_path))
    assert report.verdict == "agree", str(report)
    unaligned = {name for name, status in statuses(report).items() if status == "unaligned"}
    assert unaligned == set(reshapes_of(own(of_rows), "addmm", "gelu"))

    next(node for node in model.graph.node if node.op_type == "Erf").op_type = "Tanh"
    report = check(of_rows, 0, model=saved(model, tmp_path))
    assert [cause.fx_node for cause in report.causes] == ["gelu"]
    assert "on the same operands" in report.causes[0].reason
    assert statuses(report)["addmm_1"] == "inherits"


def test_nodes_that_go_over_several_fx_nodes_say_so(of_rows: Path, tmp_path: Path) -> None:
    """Where a model has names of its own, nothing stands for what lies between input and output."""
    wrong = renamed(bare(own(of_rows)))
    next(node for node in wrong.graph.node if node.op_type == "Erf").op_type = "Tanh"
    report = check(of_rows, 0, model=saved(wrong, tmp_path))
    (row,) = (row for row in report.rows if row.onnx_value)
    model = onnx.load(tmp_path / "other.onnx")
    assert len(row.onnx_nodes) == len(model.graph.node) - 1, "all but the view of the output"
    before, behind = reshapes_of(own(of_rows), "addmm", "gelu")
    assert row.fused == ("view", "t", "addmm", before, "gelu", behind, "t_1", "addmm_1")
    made = f"made by {', '.join(row.onnx_nodes[:6])} and {len(row.onnx_nodes) - 6} more"
    assert f"{made} in place of FX {', '.join(row.fused[:6])} and 2 more" in " ".join(str(report).split())
    assert not any(row.fused for row in check(of_rows, 0, model=of_rows / "model_0.onnx").rows)


NORM = """
<ir_version: 10, opset_import: ["" : 20, "mine" : 1]>
g (float[3,4,7] x) => (float[12,7] tanh) {
    getitem, view = mine.norm(x)
    tanh = Tanh(view)
}
<domain: "mine", opset_import: ["" : 20]>
norm (x) => (normed, rows) {
    seven = Constant<value_ints = [7, 1]>()
    sevenths = ConstantOfShape<value = float[1] {0.14285714}>(seven)
    mean = MatMul(x, sevenths)
    apart = Sub(x, mean)
    squares = Mul(apart, apart)
    variance = MatMul(squares, sevenths)
    small = Constant<value_float = 0.00001>()
    more = Add(variance, small)
    deviation = Sqrt(more)
    normed = Div(apart, deviation)
    sizes = Constant<value_ints = [12, 7]>()
    rows = Reshape(normed, sizes)
}
"""


def test_a_node_that_makes_several_values_is_judged_by_all_its_work(tmp_path: Path) -> None:
    """By itself a view moves nothing; the sum of what is far larger than its differences does."""
    x = torch.randn(3, 4, 7, generator=torch.Generator().manual_seed(0)) * 1e-3 + 1000
    model = nn.Sequential(nn.LayerNorm(7, elementwise_affine=False), nn.Flatten(0, 1), nn.Tanh())
    compare(model, (x,), dump=tmp_path / "dump")
    (given,) = (value.name for value in own(tmp_path / "dump").graph.input)
    other = onnx.parser.parse_model(re.sub(r"\bx\b", given, NORM))
    report = check(tmp_path / "dump", 0, model=saved(other, tmp_path))
    assert report.verdict == "agree", str(report)
    assert {row.fx_node: row.fused for row in report.rows} == {
        "getitem": (),
        "view": ("native_layer_norm", "view"),
        "tanh": (),
    }
    assert max(row.local.max_abs for row in report.rows if row.fx_node == "view") > 1e-4


def test_a_value_whose_axes_have_changed_places_stands_for_none(of_rows: Path, tmp_path: Path) -> None:
    """The fault of the GELU is then one of the next value."""
    model = without_reshapes(of_rows)
    (gelu,) = (node for node in model.graph.node if node.output[0] == "gelu")
    at = list(model.graph.node).index(gelu)
    gelu.output[0] = "before"
    turn, back = (
        onnx.helper.make_node("Transpose", [read], [made], perm=[1, 0])
        for read, made in (("before", "gelu"), ("gelu", "back"))
    )
    model.graph.node.insert(at + 1, turn)
    model.graph.node.insert(at + 2, back)
    for node in list(model.graph.node)[at + 3 :]:
        node.input[:] = ["back" if name == "gelu" else name for name in node.input]
    report = check(of_rows, 0, model=saved(model, tmp_path))
    assert report.verdict == "agree", str(report)
    assert statuses(report)["gelu"] == "unaligned"

    next(node for node in model.graph.node if node.op_type == "Erf").op_type = "Tanh"
    report = check(of_rows, 0, model=saved(model, tmp_path))
    assert [cause.fx_node for cause in report.causes] == ["addmm_1"]
