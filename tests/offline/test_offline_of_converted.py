"""``check --model`` of models that a converter has made of a dump's, in float16 or in part of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop

from dort_compare import Report, compare
from dort_compare.models import LlamaConfig, build
from dort_compare.offline import check
from dort_compare.trace.graph_run import EngineName

float16 = pytest.importorskip("onnxruntime.transformers.float16")
Change = Callable[[onnx.ModelProto], None]


class Network(nn.Module):
    """A convolution, a norm that has running numbers, attention with a mask, and a GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.convolution(x)).transpose(1, 2)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = (x @ x.transpose(1, 2)).masked_fill(hidden, torch.finfo(x.dtype).min)
        return self.down(nn.functional.gelu(self.up(scores.softmax(-1) @ x))).sigmoid()


def dumped(folder: Path, model: nn.Module, *inputs: Tensor, **options: Any) -> Path:
    compare(model, inputs, dump=folder / "dump", **options)
    return folder / "dump"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return dumped(tmp_path_factory.mktemp("network"), Network(), torch.randn(2, 4, 6), backward=True)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In an opset where GELU is several nodes."""
    torch.manual_seed(0)
    with torch.no_grad():
        folder, x = tmp_path_factory.mktemp("evaluated"), torch.randn(2, 4, 6)
        return dumped(folder, Network().eval(), x, target_opset=19)


def own(dump: Path, graph: int = 0) -> onnx.ModelProto:
    return onnx.load(dump / f"model_{graph}.onnx")


def converted(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float16.convert_float_to_float16(model, **{"keep_io_types": True, **options})


def checked(dump: Path, model: onnx.ModelProto, folder: Path, graph: int = 0, engine: EngineName = "ort") -> Report:
    onnx.save(model, folder / "other.onnx")
    return check(dump, graph, model=folder / "other.onnx", engine=engine)


def causes(report: Report) -> list[str]:
    return [cause.fx_node for cause in report.causes]


def node_of(model: onnx.ModelProto, op_type: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type == op_type)


CONVERSIONS = {
    "whole": {},
    "inputs and outputs too": {"keep_io_types": False},
    "but for some operators": {"op_block_list": [*float16.DEFAULT_OP_BLOCK_LIST, "Softmax", "Erf", "ReduceSum"]},
    "constants clipped at 1e4": {"max_finite_val": 1e4},
}


@pytest.mark.parametrize("graph", [0, 1])
@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_a_right_conversion_agrees_value_by_value(conversion: str, graph: int, network: Path, tmp_path: Path) -> None:
    report = checked(network, converted(own(network, graph), **CONVERSIONS[conversion]), tmp_path, graph)
    assert report.verdict == "agree", str(report)
    assert {row.status for row in report.rows} <= ({"ok", "inherits"} if graph else {"ok"})
    assert sum(row.held_in == "float16" for row in report.rows) > len(report.rows) / 2
    assert "held in float16 by the model" in str(report)


def test_what_a_converter_leaves_in_float32_agrees(evaluated: Path, tmp_path: Path) -> None:
    """Its casts bear the metadata of what they cast."""
    model = converted(own(evaluated), op_block_list=[*float16.DEFAULT_OP_BLOCK_LIST, "Softmax", "MatMul", "Sigmoid"])
    report = checked(evaluated, model, tmp_path)
    assert report.verdict == "agree", str(report)
    assert {row.status for row in report.rows} == {"ok"}


def test_a_conversion_of_what_is_partly_in_half_precision_agrees(tmp_path: Path) -> None:
    torch.manual_seed(0)
    part, inputs = build("decoder", LlamaConfig(hidden=32, heads=4, intermediate=64), batch=2, seq=6)
    dump = dumped(tmp_path, part, *inputs, backward=True, autocast=torch.bfloat16)
    for graph in (0, 1):
        report = checked(dump, converted(own(dump, graph)), tmp_path, graph)
        assert report.verdict == "agree", str(report)
        assert {row.held_in for row in report.rows} == {"float16", None}


@pytest.mark.parametrize("to", [TensorProto.STRING, TensorProto.INT4])
def test_a_converted_model_may_cast_to_what_torch_does_not_have(to: int, evaluated: Path, tmp_path: Path) -> None:
    model = converted(own(evaluated))
    model.graph.node.append(cast("gelu", "other", to))
    report = checked(evaluated, model, tmp_path)
    assert report.verdict == "agree", str(report)


def swapped(op_type: str, other: str) -> Change:
    def change(model: onnx.ModelProto) -> None:
        node_of(model, op_type).op_type = other

    return change


def of_another_axis(model: onnx.ModelProto) -> None:
    next(a for a in node_of(model, "Softmax").attribute if a.name == "axis").i = 1


def of_another_epsilon(model: onnx.ModelProto) -> None:
    next(a for a in node_of(model, "BatchNormalization").attribute if a.name == "epsilon").f = 0.1


def negated(model: onnx.ModelProto) -> None:
    node = node_of(model, "Softmax")
    name, node.output[0] = node.output[0], "positive"
    model.graph.node.insert(
        list(model.graph.node).index(node) + 1, helper.make_node("Neg", ["positive"], [name], "minus")
    )


def of_another_constant(model: onnx.ModelProto) -> None:
    """Half of what the GELU multiplies by."""
    half = next(t for t in model.graph.initializer if not t.dims and numpy_helper.to_array(t) == 0.5)
    half.CopyFrom(numpy_helper.from_array(np.array(0.52, np.float16), half.name))


@pytest.mark.parametrize(
    ("change", "fx_node"),
    [
        (swapped("Erf", "Tanh"), "gelu"),
        (of_another_axis, "_softmax"),
        (of_another_epsilon, "_native_batch_norm_legit_no_training"),
        (of_another_constant, "gelu"),
        (negated, "_softmax"),
    ],
)
def test_a_fault_in_a_converted_model_is_named(change: Change, fx_node: str, evaluated: Path, tmp_path: Path) -> None:
    model = converted(own(evaluated))
    change(model)
    report = checked(evaluated, model, tmp_path)
    assert causes(report) == [fx_node], str(report)
    assert not [name for name in report.causes[0].onnx_nodes if name not in {node.name for node in model.graph.node}]


def cast(name: str, made: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [name], [made], f"{made}/cast", to=to)


def behind(model: onnx.ModelProto, name: str, *nodes: onnx.NodeProto) -> None:
    """Puts nodes behind the one that makes a value."""
    at = next(i for i, node in enumerate(model.graph.node) if name in node.output)
    for i, node in enumerate(nodes, at + 1):
        model.graph.node.insert(i, node)


def read_as(model: onnx.ModelProto, name: str, other: str) -> None:
    for node in model.graph.node:
        node.input[:] = [other if read == name else read for read in node.input]


def rounded_for_its_readers(model: onnx.ModelProto) -> None:
    read_as(model, "gelu", "rounded")
    behind(model, "gelu", cast("gelu", "half", TensorProto.FLOAT16), cast("half", "rounded", TensorProto.FLOAT))


def rounded_under_its_name(model: onnx.ModelProto) -> None:
    next(node for node in model.graph.node if "gelu" in node.output).output[0] = "exact"
    behind(model, "exact", cast("exact", "half", TensorProto.FLOAT16), cast("half", "gelu", TensorProto.FLOAT))


def rounded_and_held_so(model: onnx.ModelProto) -> None:
    del model.graph.value_info[:]
    read_as(model, "gelu", "rounded")
    next(node for node in model.graph.node if "gelu" in node.output).output[0] = "exact"
    behind(model, "exact", cast("exact", "gelu", TensorProto.FLOAT16), cast("gelu", "rounded", TensorProto.FLOAT))


@pytest.mark.parametrize("change", [rounded_for_its_readers, rounded_under_its_name, rounded_and_held_so])
def test_a_cast_to_half_precision_and_back_is_a_fault_of_a_model_in_float32(
    change: Change, evaluated: Path, tmp_path: Path
) -> None:
    model = own(evaluated)
    change(model)
    report = checked(evaluated, model, tmp_path)
    readers = [row.fx_node for row in report.rows if "gelu" in row.operands]
    assert causes(report) == (["gelu"] if change is rounded_under_its_name else readers), str(report)
    assert {row.held_in for row in report.rows} == {None}


class Raised(nn.Module):
    """Values in half precision, which ONNX nodes raise to float32 where they compute with them."""

    def forward(self, x: Tensor) -> Tensor:
        y, z = torch.cat([x, x]), torch.cat([x, x + 1])
        return (y * z).float().sigmoid()


@pytest.fixture(scope="module")
def raised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return dumped(tmp_path_factory.mktemp("raised"), Raised(), torch.randn(3, 4).half())


def as_it_is(model: onnx.ModelProto) -> None:
    """Changes nothing."""


def rounded_before_it_is_returned(model: onnx.ModelProto) -> None:
    name = model.graph.output[0].name
    next(node for node in model.graph.node if name in node.output).output[0] = "exact"
    behind(model, "exact", cast("exact", "half", TensorProto.BFLOAT16), cast("half", name, TensorProto.FLOAT))


def returned_as(model: onnx.ModelProto, to: int) -> None:
    (output,) = model.graph.output
    next(node for node in model.graph.node if output.name in node.output).output[0] = "exact"
    behind(model, "exact", cast("exact", output.name, to))
    output.type.tensor_type.elem_type = to


def returned_in_half_precision(model: onnx.ModelProto) -> None:
    returned_as(model, TensorProto.BFLOAT16)


@pytest.mark.parametrize(("to", "dtype"), [(TensorProto.DOUBLE, "float64"), (TensorProto.INT64, "int64")])
def test_an_output_of_a_converted_model_in_a_dtype_that_is_not_coarser_is_named(
    to: int, dtype: str, evaluated: Path, tmp_path: Path
) -> None:
    model = converted(own(evaluated))
    returned_as(model, to)
    report = checked(evaluated, model, tmp_path)
    assert [cause.reason for cause in report.causes] == [f"dtype {dtype} instead of float32"], str(report)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (as_it_is, None),
        (rounded_before_it_is_returned, "max |torch - onnx|"),
        (returned_in_half_precision, "dtype bfloat16 instead of float32"),
    ],
)
def test_what_torch_has_in_half_precision_itself_makes_no_converted_model(
    change: Change, reason: str | None, raised: Path, tmp_path: Path
) -> None:
    model = own(raised)
    change(model)
    report = checked(raised, model, tmp_path)
    assert {row.held_in for row in report.rows} == {None}
    assert causes(report) == (["sigmoid"] if reason else []), str(report)
    assert all(cause.reason.startswith(reason or "") for cause in report.causes)


class Looping(nn.Module):
    """A loop, of whose results ONNX infers no sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        def step(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, self.linear(y).tanh()

        return while_loop(lambda i, _: i < 3, step, (torch.tensor(0), x))[1].exp() + x.sin()


def test_what_a_loop_gives_in_half_precision_agrees(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        dump = dumped(tmp_path, Looping(), torch.randn(3, 4))
    report = checked(dump, converted(own(dump)), tmp_path)
    assert report.verdict == "agree", str(report)
    assert {row.held_in for row in report.rows if row.dtype == "float32"} == {"float16"}


class Scaled(nn.Module):
    """A factor that makes numbers larger or smaller than float16 holds."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return (x.exp() * self.factor).tanh() + x


def test_what_overflows_in_half_precision_is_named(tmp_path: Path) -> None:
    dump = dumped(tmp_path, Scaled(2e4), torch.linspace(0, 3, 8))
    report = checked(dump, converted(own(dump)), tmp_path)
    assert causes(report) == ["mul"], str(report)
    assert "inf" in report.causes[0].reason


def test_what_half_precision_holds_nothing_of_is_named(tmp_path: Path) -> None:
    dump = dumped(tmp_path, Scaled(1e-10), torch.linspace(0, 3, 8))
    report = checked(dump, converted(own(dump)), tmp_path)
    assert causes(report) == ["mul"], str(report)
    assert report.causes[0].reason == "float16 holds nothing of it: its largest element is 2.01e-09"


class Turning(nn.Module):
    """The sine of numbers of which a rounding to float16 is a large part of a turn."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x.exp().sin() + y.sin()


def after_the_exponential(model: onnx.ModelProto) -> onnx.ModelProto:
    """In float16 but for the exponential, which is held in float32, as its reader alone casts it."""
    model = converted(model, node_block_list=[node_of(model, "Exp").name])
    down = next(node for node in model.graph.node if node.op_type == "Cast" and "exp" in node.output)
    exact = down.input[0]
    read_as(model, "exp", "half")
    down.output[0] = "half"
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = ["exp" if name == exact else name for name in names]
    del model.graph.value_info[:]
    return model


@pytest.mark.parametrize("engine", ["ort", "reference"])
@pytest.mark.parametrize("convert", [converted, after_the_exponential])
def test_torch_reads_what_the_model_rounds(
    convert: Callable[[onnx.ModelProto], onnx.ModelProto], engine: EngineName, tmp_path: Path
) -> None:
    """ONNX Runtime may drop such a rounding, the reference evaluator does not."""
    x = torch.linspace(6.9, 6.91, 16)
    dump = dumped(tmp_path, Turning(), x, x.exp())
    report = checked(dump, convert(own(dump)), tmp_path, engine=engine)
    assert report.verdict == "agree", str(report)
    held = {row.fx_node: row.held_in for row in report.rows}
    assert held["exp"] == (None if convert is after_the_exponential else "float16")
