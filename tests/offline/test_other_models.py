"""Another model in the place of a graph's own: optimized, edited, renamed or converted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
import torch
from other_models import bare, own, renamed, run, saved, statuses
from torch import Tensor, nn

from dort_compare import compare
from dort_compare.errors import UsageError
from dort_compare.measure.rows import Row
from dort_compare.offline import check


@pytest.mark.parametrize("graph", [0, 1])
def test_a_model_without_metadata_is_aligned_by_name(dump: Path, tmp_path: Path, graph: int) -> None:
    report = check(dump, graph, model=saved(bare(own(dump, graph)), tmp_path))
    assert report.verdict == "agree", str(report)
    own_report = check(dump, graph)
    assert [row.local for row in report.rows] == [row.local for row in own_report.rows]
    assert [row.onnx_nodes for row in report.rows] == [row.onnx_nodes for row in own_report.rows]
    assert set(statuses(report).values()) == {"ok"}


@pytest.mark.parametrize("told", [True, False])
def test_a_value_that_is_declared_twice_is_aligned(dump: Path, tmp_path: Path, *, told: bool) -> None:
    """As onnxslim leaves it, which ONNX allows; either of the two may say what the value stands for."""
    model = own(dump)
    twice = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in model.graph.value_info]
    for value in model.graph.value_info if told else twice:
        del value.metadata_props[:]
    for value in twice:
        value.ClearField("type")
    model.graph.value_info.extend(twice)
    report = check(dump, 0, model=saved(model, tmp_path))
    assert set(statuses(report).values()) == {"ok"}, str(report)

    shutil.copytree(dump, tmp_path / "dump")
    shutil.copy(tmp_path / "other.onnx", tmp_path / "dump" / "model_0.onnx")
    assert set(statuses(check(tmp_path / "dump", 0)).values()) == {"ok"}


def optimized_by_onnx_runtime(model: Path, folder: Path) -> Path:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(folder / "other.onnx")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 3
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return folder / "other.onnx"


@pytest.mark.parametrize("graph", [0, 1])
def test_what_onnx_runtime_optimized_is_aligned_by_the_names_that_survive(
    dump: Path, tmp_path: Path, graph: int
) -> None:
    report = check(dump, graph, model=optimized_by_onnx_runtime(dump / f"model_{graph}.onnx", tmp_path))
    assert report.verdict == "agree", str(report)
    found = statuses(report)
    assert "unaligned" in found.values(), "nothing was optimized away: no test of alignment"
    assert sum(status == "ok" for status in found.values()) >= len(found) // 2
    assert all(row.reason for row in report.rows if row.status == "unaligned")


class Cancelling(nn.Module):
    """The product has no value once it is one node with the sum, which cancels; the last result is a constant then."""

    def forward(self, x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.add(x @ w, y), torch.ones_like(y).cumsum(0)


def test_what_onnx_runtime_fused_and_folded_is_no_departure(tmp_path: Path) -> None:
    x, w = torch.randn(8, 64), torch.randn(64, 8)
    compare(Cancelling(), (x, w, -(x.double() @ w.double()).float()), dump=tmp_path / "dump")
    other = optimized_by_onnx_runtime(tmp_path / "dump" / "model_0.onnx", tmp_path)
    report = check(tmp_path / "dump", model=other)
    assert {row.fx_node: row.status for row in report.rows} == {
        "mm": "unaligned",
        "add": "ok",
        "ones_like": "unaligned",
        "cumsum": "ok",
    }, str(report)
    assert report.verdict == "agree", str(report)
    model = onnx.load(other)
    (gemm,) = (node for node in model.graph.node if node.op_type == "Gemm")
    gemm.attribute.append(onnx.helper.make_attribute("alpha", 1.001))
    onnx.save(model, other)
    assert [cause.fx_node for cause in check(tmp_path / "dump", model=other).causes] == ["add"]


class Parted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = x.bfloat16()
        return q.sin() * k.cos() + v.tanh()


def test_what_onnx_runtime_optimized_may_hold_values_that_declare_no_type(tmp_path: Path) -> None:
    """Gathers of bfloat16 become a Split and Squeezes."""
    compare(Parted(), (torch.randn(3, 4, 5),), dump=tmp_path / "dump")
    other = optimized_by_onnx_runtime(tmp_path / "dump" / "model_0.onnx", tmp_path)
    assert "Split" in {node.op_type for node in onnx.load(other).graph.node}
    report = check(tmp_path / "dump", model=other)
    assert report.verdict == "agree", str(report)


def test_an_edited_model_is_blamed_where_it_was_edited(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = bare(own(dump))
    node = next(node for node in model.graph.node if node.op_type == "Exp")
    node.op_type = "Tanh"
    status, out, _ = run(capsys, dump, "--graph", 0, "--model", saved(model, tmp_path))
    assert status == 1
    assert out.startswith("diverge: forward silu (aten.silu.default)")
    report = check(dump, 0, model=tmp_path / "other.onnx")
    assert [cause.fx_node for cause in report.causes] == ["silu"]


def test_a_model_that_shares_no_names_is_judged_by_its_outputs(dump: Path, tmp_path: Path) -> None:
    report = check(dump, 0, model=saved(renamed(bare(own(dump))), tmp_path))
    assert report.verdict == "agree"
    aligned = [row.fx_node for row in report.rows if row.status == "ok"]
    outputs = [value.name for value in own(dump).graph.output]
    assert aligned == [row.fx_node for row in report.rows if row.fx_node in outputs]
    assert aligned

    wrong = renamed(bare(own(dump)))
    next(node for node in wrong.graph.node if node.op_type == "Exp").op_type = "Tanh"
    report = check(dump, 0, model=saved(wrong, tmp_path))
    assert report.verdict == "diverge"


def test_its_own_metadata_goes_before_names(dump: Path, tmp_path: Path) -> None:
    report = check(dump, 0, model=saved(renamed(own(dump)), tmp_path))
    assert set(statuses(report).values()) == {"ok"}


def test_a_declaration_of_what_is_not_made_any_more_takes_no_metadata_away(dump: Path, tmp_path: Path) -> None:
    model = renamed(own(dump))
    declared = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in own(dump).graph.value_info]
    model.graph.value_info.extend(declared)
    report = check(dump, 0, model=saved(model, tmp_path))
    assert set(statuses(report).values()) == {"ok"}


def halved(model: onnx.ModelProto) -> onnx.ModelProto:
    """Converted to float16 inside, inputs and outputs as they were, as converters do it."""
    graph = model.graph
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype("f2"), tensor.name))
    cast, half, single = onnx.helper.make_node, onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    inputs, outputs = ([value.name for value in values] for values in (graph.input, graph.output))
    computed = {name for node in graph.node for name in node.output}
    outputs = [name for name in outputs if name in computed]
    for node in graph.node:
        node.input[:] = [f"{name}.half" if name in {*inputs, *outputs} else name for name in node.input]
        node.output[:] = [f"{name}.half" if name in outputs else name for name in node.output]
    before = [cast("Cast", [name], [f"{name}.half"], to=half) for name in inputs]
    after = [cast("Cast", [f"{name}.half"], [name], to=single) for name in outputs]
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def labelled(model: onnx.ModelProto) -> onnx.ModelProto:
    """As it is, with what its values in between are declared as converted too."""
    for value in model.graph.value_info:
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    return model


@pytest.mark.parametrize("prepared", [bare, labelled])
def test_a_model_converted_to_another_dtype_is_aligned(
    prepared: Callable[[onnx.ModelProto], onnx.ModelProto], dump: Path, tmp_path: Path
) -> None:
    report = check(dump, 0, model=saved(halved(prepared(own(dump))), tmp_path))
    assert report.verdict == "agree", str(report)
    assert {row.held_in for row in report.rows} == {"float16"}
    assert all(row.inherited.max_abs < 0.01 for row in report.rows)


def test_a_model_whose_nodes_are_in_no_order_is_judged_as_if_they_were(dump: Path, tmp_path: Path) -> None:
    """As converters leave them: the casts of the inputs come last."""
    model = halved(bare(own(dump)))
    sorted_report = check(dump, 0, model=saved(model, tmp_path))
    first = [node for node in model.graph.node if node.input[0] in {value.name for value in model.graph.input}]
    nodes = [*(node for node in model.graph.node if node not in first), *first]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    report = check(dump, 0, model=saved(model, tmp_path))
    assert [in_name_order(row) for row in report.rows] == [in_name_order(row) for row in sorted_report.rows]
    assert [cause.fx_node for cause in report.causes] == [cause.fx_node for cause in sorted_report.causes]


def in_name_order(row: Row) -> Row:
    """Where no order is given, that of the nodes of one step is any."""
    return replace(row, onnx_nodes=tuple(sorted(row.onnx_nodes)), op_types=tuple(sorted(row.op_types)))


def test_a_cast_of_an_input_that_bears_its_label_is_one_step_of_what_reads_it(dump: Path, tmp_path: Path) -> None:
    """onnxruntime's float16 converter copies an input's declaration, metadata included, for its cast."""
    model = halved(bare(own(dump)))
    for value in model.graph.input:
        cast = model.graph.value_info.add()
        cast.CopyFrom(value)
        cast.name = f"{value.name}.half"
        cast.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    report = check(dump, 0, model=saved(model, tmp_path))
    assert not [row.reason for row in report.rows if row.reason and "no value for" in row.reason]


def test_a_model_stands_for_one_graph(dump: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can stand for one graph only; choose it with --graph: model_0, model_1"):
        check(dump, model=saved(own(dump), tmp_path))
