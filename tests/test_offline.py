"""A dump alone gives the verdict of the comparison that wrote it, and judges other models in the place of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest
import torch
from of_function import Of
from small_models import mlp
from torch import Tensor, nn

from dort_compare import DebugBackend, Report, compare
from dort_compare.cli import main
from dort_compare.errors import DumpError, UsageError
from dort_compare.lowering import registry
from dort_compare.measure.rows import Row
from dort_compare.models import LlamaConfig, build
from dort_compare.offline import bisected, check

LLAMA = LlamaConfig(hidden=32, heads=2, kv_heads=1, intermediate=48, vocabulary=20, layers=1)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["check", *map(str, arguments)])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


class Numbers(nn.Module):
    """Integers, booleans, a 0-d number, an operand that is not contiguous."""

    def forward(self, x: Tensor, n: Tensor, keep: Tensor, factor: float) -> Tensor:
        return torch.where(keep, x.t().softmax(-1), 0.0).sum(0)[n] * factor + n


def decoder(**options: Any) -> Callable[[], Any]:
    return lambda: (*build("decoder", LLAMA, seq=6), {"backward": True, **options})


NUMBERS = (torch.randn(4, 3).t(), torch.tensor([2, 0]), torch.rand(4, 3) > 0.3, 2.5)
CASES: dict[str, Callable[[], Any]] = {
    "backward": lambda: (mlp(), (torch.randn(5, 3),), {"backward": True}),
    "dynamic": lambda: (mlp(), (torch.randn(5, 3),), {"backward": True, "dynamic": True}),
    "in pieces": lambda: (
        nn.Sequential(mlp(), nn.Dropout(), nn.Linear(2, 2)),
        (torch.randn(5, 3),),
        {"backward": True},
    ),
    "numbers": lambda: (Numbers(), NUMBERS, {}),
    "mixed": lambda: (mlp(), (torch.randn(5, 3),), {"backward": True, "autocast": torch.bfloat16}),
    "bfloat16": decoder(autocast=torch.bfloat16),
    "float16": decoder(autocast=torch.float16),
    "torch's exporter": decoder(exporter="torch"),
}
LONG = ("bfloat16", "float16", "torch's exporter")


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] if c in LONG else []) for c in CASES])
def test_a_dump_gives_the_verdict_and_the_rows_of_the_comparison(case: str, tmp_path: Path) -> None:
    model, args, options = CASES[case]()
    report = compare(model, args, dump=tmp_path / "dump", **options)
    again = check(tmp_path / "dump")
    assert again.rows == report.rows
    assert any(row.inherited for row in again.rows)
    assert (again.verdict, again.causes) == (report.verdict, report.causes)
    assert again.graphs == report.graphs


def test_causes_and_what_they_reach_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lowering that is wrong: by name the parameters whose gradients it reaches."""
    silu = torch.ops.aten.silu.default
    right = registry._TABLE[silu]
    monkeypatch.setitem(registry._TABLE, silu, lambda op, x: op.Mul(right(op, x), op.const(1.01, torch.float32)))
    report = compare(mlp(), (torch.randn(5, 3),), backward=True, dump=tmp_path / "dump")
    monkeypatch.undo()
    assert report.verdict == "diverge"
    assert report.first_divergence is not None
    assert report.first_divergence.reach is not None
    assert "2.weight" in report.first_divergence.reach.gradients
    again = check(tmp_path / "dump")
    assert again.causes == report.causes
    assert again.rows == report.rows


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The forward and backward graph of a small network."""
    folder = tmp_path_factory.mktemp("offline") / "dump"
    torch.manual_seed(0)
    compare(mlp(), (torch.randn(5, 3),), backward=True, dump=folder)
    return folder


@pytest.fixture
def copy(dump: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dump, tmp_path / "dump"))


def test_another_process_needs_nothing_but_the_dump(dump: Path, tmp_path: Path) -> None:
    program = "from dort_compare.cli import main; main()"
    command = [sys.executable, "-c", program, "check", dump, "--json", tmp_path / "report.json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("agree: ")
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "agree"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json"]


def test_one_graph_by_number_or_name(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for which in ("1", "model_1"):
        status, out, _ = run(capsys, dump, "--graph", which)
        assert status == 0
        assert out.startswith("agree")
    assert {row.phase for row in check(dump, 1).rows} == {"backward"}
    status, _, err = run(capsys, dump, "--graph", "7")
    assert (status, err.count("\n")) == (2, 1)
    assert "has no graph '7'; choose one of model_0, model_1" in err


# Another model in the place of a graph's own.


def own(dump: Path, number: int = 0) -> onnx.ModelProto:
    return onnx.load(dump / f"model_{number}.onnx")


def bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without anything that says where it comes from."""
    del model.metadata_props[:]
    model.producer_name = "somebody else"
    del model.graph.value_info[:]
    for owner in (*model.graph.node, *model.graph.output):
        del owner.metadata_props[:]
    return model


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """With names of its own for all that it computes."""
    names = {name: f"v{i}" for i, node in enumerate(model.graph.node) for name in node.output}
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names[name] for name in node.output]
    for value in (*model.graph.value_info, *model.graph.output):
        value.name = names.get(value.name, value.name)
    return model


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    onnx.save(model, folder / "other.onnx")
    return folder / "other.onnx"


def statuses(report: Report) -> dict[str, str]:
    return {row.fx_node: row.status for row in report.rows}


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


def test_where_nothing_can_be_compared_a_model_is_refused(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = renamed(bare(own(dump)))
    names = ", ".join(value.name for value in own(dump).graph.output)
    returned = len(model.graph.output)
    del model.graph.output[1:]
    status, out, err = run(capsys, dump, "--graph", 0, "--model", saved(model, tmp_path))
    assert (status, out) == (2, "")
    assert err == (
        f"dort-compare: {tmp_path / 'other.onnx'} shares no name of a value with the graph, and its number of "
        f"outputs is 1, not {returned}, so nothing can be compared: let it return {names}, by name or in this order\n"
    )


def test_a_model_that_makes_a_value_twice_is_refused(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = own(dump)
    model.graph.node.append(model.graph.node[-1])
    status, out, err = run(capsys, dump, "--graph", 0, "--model", saved(model, tmp_path))
    assert (status, out, err.count("\n")) == (2, "", 1)
    twice = model.graph.node[-1].output[0]
    assert err.endswith(f"other.onnx makes {twice} more than once: give each result a name of its own\n")


def test_a_file_that_is_no_whole_model_says_what_is_expected(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for content in (b"", b"no model", own(dump).SerializeToString()[:-100]):
        (tmp_path / "other.onnx").write_bytes(content)
        status, out, err = run(capsys, dump, "--graph", 0, "--model", tmp_path / "other.onnx")
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert err.endswith("; name a whole ONNX file, as onnx.save writes it\n")


def test_other_models_may_keep_constants_beside_them_but_not_elsewhere(dump: Path, tmp_path: Path) -> None:
    model = own(dump)
    two = onnx.numpy_helper.from_array(torch.zeros(300).numpy(), "two")
    model.graph.initializer.append(two)
    options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(model, tmp_path / "other.onnx", **options)
    assert check(dump, 0, model=tmp_path / "other.onnx").verdict == "agree"
    (tmp_path / "below").mkdir()
    model = onnx.load(tmp_path / "other.onnx", load_external_data=False)
    for entry in (entry for tensor in model.graph.initializer for entry in tensor.external_data):
        entry.value = "../weights.bin" if entry.key == "location" else entry.value
    onnx.save(model, tmp_path / "below" / "other.onnx")
    with pytest.raises(DumpError, match="may stand in files beside it only"):
        check(dump, 0, model=tmp_path / "below" / "other.onnx")


def shown(*operands: str) -> Callable[[onnx.ModelProto], None]:
    """Lets an output show what is read, which is nothing or goes in a circle."""

    def change(model: onnx.ModelProto) -> None:
        name = model.graph.output[0].name
        next(node for node in model.graph.node if name in node.output).output[0] = "elsewhere"
        model.graph.node.append(onnx.helper.make_node("Identity", operands, [name]))
        model.graph.node.append(onnx.helper.make_node("Identity", [name], ["again"]))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shown(), "no model that runs: ONNX Runtime failed"),
        (shown("again"), "no model that runs: ONNX Runtime failed.*not acyclic"),
        (
            lambda m: setattr(m.graph.input[0], "name", "pixels"),
            "reads pixels, for which .* names that the graph.s have; pixels may be ",
        ),
        (
            lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 10),
            "as torch.float16, the dump holds torch.float32",
        ),
        (lambda m: setattr(m.graph.node[0], "op_type", "Nonsense"), "cannot be run|ONNX Runtime failed"),
    ],
)
def test_a_model_that_cannot_run_is_one_line(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, message: str
) -> None:
    model = own(dump)
    change(model)
    status, _, err = run(capsys, dump, "--graph", 0, "--model", saved(model, tmp_path))
    assert (status, err.count("\n")) == (2, 1), err
    with pytest.raises(Exception, match=message):
        check(dump, 0, model=tmp_path / "other.onnx")


def without_output(model: onnx.ModelProto) -> None:
    del model.graph.output[0]


def unreturned(model: onnx.ModelProto) -> None:
    model.graph.output[0].name = "nowhere"


def mistyped(model: onnx.ModelProto) -> None:
    for value in model.graph.value_info:
        value.type.tensor_type.elem_type = onnx.TensorProto.UINT8


def of_seven_rows(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 7


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (unreturned, "model_0.onnx is no model that runs: ONNX Runtime failed: .*nowhere"),
        (mistyped, r"model_0.onnx is no model that runs: .*tensor\(uint8\)"),
        (of_seven_rows, "model_0.onnx declares primals_1 as 7x3, the dump holds 4x3: give it that shape"),
    ],
)
def test_a_model_that_runs_in_parts_alone_is_refused(
    copy: Path, capsys: pytest.CaptureFixture[str], change: Any, message: str
) -> None:
    model = own(copy)
    change(model)
    onnx.save(model, copy / "model_0.onnx")
    status, out, err = run(capsys, copy, "--graph", 0)
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert re.search(message, err), err


def test_names_of_strangers_do_not_speak_to_the_terminal(copy: Path) -> None:
    """In a process of its own: what is logged goes to the terminal only where nobody listens."""
    model = own(copy)
    model.graph.output[0].name = "q\x1b[31m\nagree: all"
    onnx.save(model, copy / "model_0.onnx")
    program = "from dort_compare.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "check", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "\x1b" not in done.stderr


def test_what_ran_in_eager_torch_beside_a_dump_is_told(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4), nn.GELU())
    compared = compare(model, (torch.randn(3, 4),), backward=True, dump=tmp_path / "dump")
    found = check(tmp_path / "dump")
    assert [each.target for each in found.fallbacks] == ["aten.native_dropout.default"]
    assert found.fallbacks == compared.fallbacks
    assert "agree: " in str(found)
    assert "(1 node ran in eager torch)" in str(found)
    assert check(tmp_path / "dump", 0).fallbacks == ()
    manifest = json.loads((tmp_path / "dump" / "manifest.json").read_text())
    assert [entry.get("is_piece", False) for entry in manifest["graphs"].values()] == [True, False]
    manifest["fallbacks"][0]["reason"] = "\x1b[31m\nagree: all"
    (tmp_path / "dump" / "manifest.json").write_text(json.dumps(manifest))
    assert "\x1b" not in str(check(tmp_path / "dump"))
    assert "\nagree: all" not in str(check(tmp_path / "dump"))


@pytest.mark.parametrize("name", ["manifest.json", "model_0.onnx", "model_1.inputs.safetensors"])
@pytest.mark.parametrize("option", ["--json", "--html"])
def test_a_report_does_not_take_the_place_of_what_is_read(
    dump: Path, capsys: pytest.CaptureFixture[str], name: str, option: str
) -> None:
    before = (dump / name).read_bytes()
    status, out, err = run(capsys, dump, option, dump / name)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{name} is read, and what it holds would be lost; choose another file" in err
    assert (dump / name).read_bytes() == before


def test_a_report_may_lie_in_the_dump(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert run(capsys, copy, "--json", copy / "report.json")[0] == 0


def test_a_finite_mask_hides_no_fault(tmp_path: Path) -> None:
    """Beside -1e9 a wrong score is no rounding."""
    keep = torch.tensor([True, True, False, False])
    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    compare(Of(lambda x, keep: (x + torch.where(keep, 0.0, -1e9)).softmax(-1)), (scores, keep), dump=tmp_path / "dump")
    model = own(tmp_path / "dump")
    node = next(node for node in model.graph.node if node.output[0] == "add")
    node.output[0] = "right"
    off = torch.zeros(3, 4)
    off[2, 0] = 3.0
    model.graph.initializer.append(onnx.numpy_helper.from_array(off.numpy(), "off"))
    wrong = onnx.helper.make_node("Add", ["right", "off"], ["add"], name="wrong")
    wrong.metadata_props.extend(node.metadata_props)
    model.graph.node.insert(list(model.graph.node).index(node) + 1, wrong)
    report = check(tmp_path / "dump", 0, model=saved(model, tmp_path))
    assert [cause.fx_node for cause in report.causes] == ["add"]
    assert check(tmp_path / "dump").verdict == "agree"


def test_a_model_stands_for_one_graph(dump: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can stand for one graph only; choose it with --graph: model_0, model_1"):
        check(dump, model=saved(own(dump), tmp_path))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "onnxruntime"}, "unknown engine 'onnxruntime'; choose ort or reference"),
        ({"repeats": 0}, "repeats is 0; give a whole number, at least 1"),
        ({"memory": "all"}, "memory is 'all'; give a whole number"),
    ],
)
def test_a_wrong_argument_is_refused(dump: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(dump, **given)


# What did not run.


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


@pytest.mark.parametrize("graph", [None, 0])
def test_infinity_that_a_right_op_makes_of_noise_is_no_agreement(graph: int | None, tmp_path: Path) -> None:
    """ONNX Runtime's Sigmoid is exactly 0 from -18 on, which is noise, and its logarithm infinity, which is not."""
    model = Of(lambda x: torch.sigmoid(x).log())
    x = torch.linspace(-40, 40, 33, requires_grad=True)
    whole = compare(model, (x,), backward=True, exporter="torch", dump=tmp_path / "dump")
    found = check(tmp_path / "dump", graph)
    assert (whole.verdict, found.verdict) == ("diverge", "diverge")
    assert found.causes[0].fx_node == "log"
    assert found.causes[0].reason.endswith("noise beside the largest element of these; output or gradient log departs")


def test_infinity_that_is_masked_in_the_end_is_none(tmp_path: Path) -> None:
    model = Of(lambda x: torch.where(x > 0, torch.sigmoid(x).log(), x))
    compare(model, (torch.linspace(-40, 40, 33),), exporter="torch", dump=tmp_path / "dump")
    assert check(tmp_path / "dump").verdict == "agree"


def test_bisected_refuses_a_wrong_call_before_it_is_iterated(dump: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no graph '7'"):
        bisected(dump, 7)
    with pytest.raises(DumpError, match="there is no folder"):
        bisected(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="can stand for one graph only"):
        bisected(dump, model=saved(own(dump), tmp_path))


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


@pytest.mark.parametrize(("op_type", "target"), [("Gather", "t"), ("Sin", "addmm")])
def test_a_node_that_somebody_has_added_to_a_dump_in_bfloat16(tmp_path: Path, op_type: str, target: str) -> None:
    """What it reads is not declared; what it makes needs casts, as that of the node before has them."""
    module, args, kwargs = CASES["mixed"]()
    compare(module, args, **kwargs, dump=tmp_path)
    model = onnx.load(tmp_path / "model_0.onnx")
    i, maker = next((i, node) for i, node in enumerate(model.graph.node) if target in node.output)
    maker.output[0] = f"{target}_before"
    places = onnx.numpy_helper.from_array(torch.tensor([1, 0, 2]).numpy(), "places")
    model.graph.initializer.append(places)
    reads = [maker.output[0], places.name] if op_type == "Gather" else [maker.output[0]]
    node = onnx.helper.make_node(op_type, reads, [target], name="added")
    node.metadata_props.extend(maker.metadata_props)
    model.graph.node.insert(i + 1, node)
    onnx.save(model, tmp_path / "model_0.onnx")
    report = check(tmp_path)
    assert report.first_divergence is not None
    assert report.first_divergence.fx_node == target


def test_onnxs_evaluator_gathers_along_the_last_dimension(tmp_path: Path) -> None:
    model = Of(lambda x: x.gather(-1, torch.tensor([[2, 0], [1, 1]])).sin())
    compare(model, (torch.randn(2, 5),), dump=tmp_path / "dump")
    assert check(tmp_path / "dump", engine="reference").verdict == "agree"
