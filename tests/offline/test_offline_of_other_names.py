"""Models of others in the place of a dump's, which hand values on under other names than ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxscript.optimizer
import pytest
import torch
from of_function import Of
from onnx import helper, numpy_helper
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

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


class Heads(nn.Module):
    """``torch.onnx.export`` counts its views otherwise, as it does not take linear layers apart."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        q, k = (layer(x).view(2, 5, 2, 4).transpose(1, 2) for layer in (self.q, self.k))
        return self.norm((q + k).transpose(1, 2).reshape(2, 5, 8))


class Layer(nn.Module):
    """A layer of a transformer, with a mask or without one."""

    def __init__(self, *, is_masked: bool) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.mask = ~torch.ones(7, 7, dtype=torch.bool).tril() if is_masked else None

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, src_mask=self.mask)


def exported(tmp_path: Path, *behind: nn.Module) -> onnx.ModelProto:
    """What PyTorch's exporter makes of ``Heads`` and what is behind them, which has been dumped."""
    torch.manual_seed(0)
    return exported_as_dumped(tmp_path, nn.Sequential(Heads(), *behind), torch.randn(2, 5, 8))


def exported_as_dumped(tmp_path: Path, model: nn.Module, x: Tensor) -> onnx.ModelProto:
    """What PyTorch's exporter makes of a model that is dumped, with our name of its input."""
    model.eval()
    with torch.no_grad():
        compare(model, (x,), dump=tmp_path / "dump")
        own = onnx.load(tmp_path / "dump" / "model_0.onnx")
        shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in own.graph.input}
        name = next(name for name, shape in shapes.items() if shape == list(x.shape))
        options = {"dynamo": True, "opset_version": 18, "external_data": False, "verbose": False}
        torch.onnx.export(model, (x,), tmp_path / "other.onnx", input_names=[name], **options)
    return onnx.load(tmp_path / "other.onnx")


@pytest.mark.parametrize("behind", [[], [nn.Linear(8, 4)]], ids=["", "returning a view"])
def test_names_that_another_exporter_gives_to_other_values_tell_nothing(
    tmp_path: Path, behind: list[nn.Module]
) -> None:
    report = checked(tmp_path, exported(tmp_path, *behind))
    assert report.verdict == "agree", str(report)
    assert any(row.status == "unaligned" for row in report.rows)


@pytest.mark.parametrize("is_halved", [False, True])
@pytest.mark.parametrize("is_masked", [False, True])
def test_heads_that_another_exporter_counts_otherwise(tmp_path: Path, *, is_masked: bool, is_halved: bool) -> None:
    """Its second head bears the name of our first, which ours is not computed of, and later names hold what they do."""
    torch.manual_seed(0)
    other = exported_as_dumped(tmp_path, Layer(is_masked=is_masked), torch.randn(2, 7, 16))
    if is_halved:
        float16 = pytest.importorskip("onnxruntime.transformers.float16")
        other = float16.convert_float_to_float16(other, keep_io_types=True)
    report = checked(tmp_path, other)
    assert report.verdict == "agree", str(report)
    next(node for node in other.graph.node if node.op_type == "Relu").op_type = "Abs"
    assert checked(tmp_path, other).verdict == "diverge"


def test_a_folded_batch_norm_in_half_precision(tmp_path: Path) -> None:
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    torch.manual_seed(0)
    parts = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1)
    model = nn.Sequential(*parts, nn.BatchNorm2d(8), nn.ReLU())
    other = exported_as_dumped(tmp_path, model, torch.randn(2, 3, 8, 8))
    report = checked(tmp_path, float16.convert_float_to_float16(other, keep_io_types=True))
    assert report.verdict == "agree", str(report)


def test_a_fault_of_a_model_of_another_exporter_departs(tmp_path: Path) -> None:
    other = exported(tmp_path)
    next(node for node in other.graph.node if node.op_type == "Add").op_type = "Sub"
    assert checked(tmp_path, other).verdict == "diverge"


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_batch_norm_that_is_folded_leaves_the_name_of_the_convolution(tmp_path: Path, *, is_wrong: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
    model[1].running_mean.normal_(), model[1].running_var.uniform_(0.5, 2)
    with torch.no_grad():
        compare(model, (torch.randn(2, 3, 8, 8),), dump=tmp_path / "dump")
    folded = fuse_conv_bn_eval(model[0], model[1])
    other = onnx.load(tmp_path / "dump" / "model_0.onnx")
    nodes = {node.op_type: node for node in reversed(other.graph.node)}
    conv, relu = nodes["Conv"], nodes["Relu"]
    del conv.metadata_props[:], conv.input[1:]
    conv.input.extend(["weight", "bias"])
    bias = folded.bias.detach() + (0.1 if is_wrong else 0)
    for name, value in (("weight", folded.weight.detach()), ("bias", bias)):
        other.graph.initializer.append(numpy_helper.from_array(value.numpy(), name))
    relu.input[0] = conv.output[0]
    for value in other.graph.value_info:
        if value.name == conv.output[0]:
            del value.metadata_props[:]
    kept = [node for node in other.graph.node if node in (conv, relu) or node.op_type == "Conv"]
    del other.graph.node[:]
    other.graph.node.extend(kept)
    report = checked(tmp_path, other)
    assert report.verdict == ("diverge" if is_wrong else "agree"), str(report)


@pytest.mark.parametrize("shape", [[2, 5, 4], [5, 2, 4]])
def test_an_output_may_have_the_shape_in_which_the_graph_returns_it(tmp_path: Path, shape: list[int]) -> None:
    """Ours returns the product of matrices that a linear layer is, the graph a view of it."""
    torch.manual_seed(0)
    with torch.no_grad():
        compare(nn.Linear(8, 4), (torch.randn(2, 5, 8),), dump=tmp_path / "dump")
    other = onnx.load(tmp_path / "dump" / "model_0.onnx")
    (output,) = other.graph.output
    other.graph.initializer.append(numpy_helper.from_array(np.array(shape), "sizes"))
    other.graph.node.append(helper.make_node("Reshape", [output.name, "sizes"], ["result"]))
    other.graph.output[0].CopyFrom(helper.make_tensor_value_info("result", onnx.TensorProto.FLOAT, shape))
    report = checked(tmp_path, other)
    assert report.verdict == ("agree" if shape == [2, 5, 4] else "diverge"), str(report)


RETURNED_VIEWS = {
    "turned": lambda y: y.t(),
    "widened": lambda y: y[:, None].expand(3, 2, 4),
    "a part": lambda y: y[1:],
    "two of one value": lambda y: (y.t(), y.view(-1)),
}


@pytest.mark.parametrize("name", RETURNED_VIEWS)
def test_a_model_may_return_the_views_that_the_graph_returns(tmp_path: Path, name: str) -> None:
    """Ours returns what they are views of."""
    other = exported_as_dumped(tmp_path, Of(lambda x: RETURNED_VIEWS[name](x.sin())), torch.randn(3, 4))
    report = checked(tmp_path, other)
    assert report.verdict == "agree", str(report)
    next(node for node in other.graph.node if node.op_type == "Sin").op_type = "Cos"
    assert [cause.fx_node for cause in checked(tmp_path, other).causes] == ["sin"]


FAULTS_OF_NO_NAME = {
    "an index": ("Exp", "Sinh", lambda x: (x.exp() + 1).argmax(-1)),
    "beside what is large": ("Exp", "Sinh", lambda x: torch.cat([x.exp().sin(), x * 1e6], -1) * 2),
    "masked": ("Exp", "Sinh", lambda x: x.exp().masked_fill(x > 1, -1e9)),
    "lost": ("Exp", "Identity", lambda x: (x.sin().exp() + 1).argmax(-1)),
}


@pytest.mark.parametrize("name", FAULTS_OF_NO_NAME)
def test_a_fault_that_no_result_shows_is_named_all_the_same(tmp_path: Path, name: str) -> None:
    """In a model whose values bear our names and nothing else: they hold no other value of ours."""
    op_type, wrong, function = FAULTS_OF_NO_NAME[name]
    compare(Of(function), (torch.linspace(-2, 3, 12).view(3, 4),), dump=tmp_path / "dump")
    other = onnx.load(tmp_path / "dump" / "model_0.onnx")
    for owner in (*other.graph.node, *other.graph.value_info, *other.graph.output):
        del owner.metadata_props[:]
    next(node for node in other.graph.node if node.op_type == op_type).op_type = wrong
    report = checked(tmp_path, other)
    assert [cause.fx_node for cause in report.causes] == ["exp"], str(report)


def test_a_fault_that_several_named_values_read_is_told_once(tmp_path: Path) -> None:
    def three(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        h = torch.tanh(x @ w)
        return h.exp(), h.sigmoid() * 2, (h + 1).sin()

    torch.manual_seed(0)
    compare(Of(three), (torch.randn(4, 8), torch.randn(8, 8)), dump=tmp_path / "dump")
    other = onnx.load(tmp_path / "dump" / "model_0.onnx")
    unnamed = {"mm": "v0", "tanh": "v1"}
    for node in other.graph.node:
        node.op_type = "Softsign" if node.op_type == "Tanh" else node.op_type
        for names in (node.input, node.output):
            names[:] = [unnamed.get(name, name) for name in names]
    (cause,) = checked(tmp_path, other).causes
    assert cause.fx_node == "exp"
    assert cause.reason.endswith("sigmoid, add depart too, made by some of the same ONNX nodes: mm.MatMul, tanh.Tanh")
    assert cause.reach is not None
    assert cause.reach.outputs == ("exp", "mul", "sin")


class Viewed(nn.Module):
    """A norm makes a factor before it come to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(16, 32), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.norm(self.up(x).view(-1, 4, 8)))


def test_a_value_that_is_viewed_otherwise_is_no_other_value(tmp_path: Path) -> None:
    """By its name alone it is told, and what a little wrong one holds lies near what the view of a right one does."""
    torch.manual_seed(0)
    with torch.no_grad():
        compare(Viewed(), (torch.randn(6, 16),), dump=tmp_path / "dump")
    other = onnx.load(tmp_path / "dump" / "model_0.onnx")
    for owner in (*other.graph.node, *other.graph.value_info, *other.graph.output):
        del owner.metadata_props[:]
    place, product = next((i, node) for i, node in enumerate(other.graph.node) if "addmm" in node.output)
    product.output[0] = "raw"
    other.graph.initializer.append(numpy_helper.from_array(np.float32(1.001), "factor"))
    other.graph.node.insert(place + 1, helper.make_node("Mul", ["raw", "factor"], ["addmm"]))
    assert [cause.fx_node for cause in checked(tmp_path, other).causes] == ["addmm"]


@pytest.mark.parametrize("is_named", [True, False])
def test_an_attribute_that_makes_another_shape_is_named(tmp_path: Path, *, is_named: bool) -> None:
    compare(Of(lambda x: torch.cat([x.sin(), x], -1).exp().tanh()), (torch.randn(2, 6, 8),), dump=tmp_path / "dump")
    other = onnx.load(tmp_path / "dump" / "model_0.onnx")
    next(node for node in other.graph.node if node.op_type == "Concat").attribute[0].i = 1
    if not is_named:
        for owner in (*other.graph.node, *other.graph.value_info, *other.graph.output):
            del owner.metadata_props[:]
    report = checked(tmp_path, other)
    assert [cause.fx_node for cause in report.causes] == ["cat"], str(report)
    assert "shape (2, 12, 8) instead of (2, 6, 16)" in str(report)
    assert "unaligned" not in {row.status for row in report.rows}


def turned(tmp_path: Path, *, is_named: bool) -> onnx.ModelProto:
    """A dumped model that computes on rows for columns from the sine on, which keeps its name or not."""
    torch.manual_seed(0)
    function = Of(lambda x: x.sin().exp().tanh() * 2)
    compare(function, (torch.randn(6, 6),), dump=tmp_path / "dump")
    other = onnx.load(tmp_path / "dump" / "model_0.onnx")
    for owner in (*other.graph.node, *other.graph.value_info, *other.graph.output):
        del owner.metadata_props[:]
    nodes = {node.op_type: node for node in other.graph.node}
    if not is_named:
        nodes["Sin"].output[0] = "raw"
    nodes["Exp"].input[0], nodes["Mul"].input[0] = "columns", "rows"
    for read, made, before in ((nodes["Sin"].output[0], "columns", "Exp"), ("tanh", "rows", "Mul")):
        place = [node.op_type for node in other.graph.node].index(before)
        other.graph.node.insert(place, helper.make_node("Transpose", [read], [made], perm=[1, 0]))
    return other


def test_values_in_another_order_tell_nothing_where_the_results_are_right(tmp_path: Path) -> None:
    other = turned(tmp_path, is_named=False)
    report = checked(tmp_path, other)
    assert report.verdict == "agree", str(report)
    next(node for node in other.graph.node if node.op_type == "Tanh").op_type = "Softsign"
    assert checked(tmp_path, other).verdict == "diverge"


def test_an_order_that_a_call_changes_by_itself_departs(tmp_path: Path) -> None:
    report = checked(tmp_path, turned(tmp_path, is_named=True))
    assert "exp" in {cause.fx_node for cause in report.causes}, str(report)
