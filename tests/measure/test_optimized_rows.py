"""The model that ONNX Runtime's optimizers made: no false alarm, and what is wrong there is named with its FX nodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import onnx
import pytest
import torch
from of_function import Of
from torch import nn
from torch.nn import functional as F

import dort_compare
from dort_compare.errors import ExecutionError
from dort_compare.lowering import registered, registry
from dort_compare.measure import optimized as optimized_room
from dort_compare.models import PARTS, LlamaConfig, build
from dort_compare.models.llama import ATTENTIONS
from dort_compare.trace.as_it_is import AS_IT_IS

aten = torch.ops.aten
PRECISIONS = {"float32": None, "float16": torch.float16, "bfloat16": torch.bfloat16}
CASES = list(itertools.product(PARTS, ATTENTIONS, PRECISIONS, (False, True)))
EVERYDAY = {("attention", "eager", "float32", True), ("decoder", "sdpa", "float16", False)}


def mlp() -> nn.Module:
    return Of(lambda x, a, b: b(F.silu(a(x))), a=nn.Linear(16, 32, bias=False), b=nn.Linear(32, 16, bias=False))


@pytest.mark.parametrize(
    ("part", "attention", "precision", "backward"),
    [pytest.param(*case, marks=[] if case in EVERYDAY else [pytest.mark.slow]) for case in CASES],
)
def test_a_llama_agrees_optimized_too(part, attention, precision, backward):
    config = LlamaConfig(hidden=32, heads=4, kv_heads=2, intermediate=48, vocabulary=50, attention=attention)
    module, inputs = build(part, config, seq=16, mask=part == "model")
    report = dort_compare.compare(module, inputs, backward=backward, autocast=PRECISIONS[precision], optimized=True)
    assert report.verdict == "agree", str(report)
    assert report.optimized is not None
    rows = report.optimized.rows
    assert {row.status for row in rows} == {"ok"}
    assert all(row.local is not None for row in rows)
    assert {(row.graph, row.fx_node) for row in rows} < {(row.graph, row.fx_node) for row in report.rows}
    assert len(report.rows) - len(rows) == report.optimized.fused_away
    assert any(len(row.fused) > 1 for row in rows)
    assert all(seen.ok for seen in report.observed)
    assert {seen.execution for seen in report.observed} == {"lowered", "optimized"}


def changing(monkeypatch: pytest.MonkeyPatch, change: Callable[[onnx.ModelProto], None]) -> None:
    """ONNX Runtime's optimizers, where they are on, are followed by ``change``."""
    real = optimized_room.optimized_model

    def wrong(model, settings, *args):
        made = real(model, settings, *args)
        if settings is not AS_IT_IS:
            change(made)
        return made

    monkeypatch.setattr(optimized_room, "optimized_model", wrong)


def scale_attribute(op_type: str, attribute: str, factor: float) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node = next(node for node in model.graph.node if node.op_type == op_type)
        (found,) = (a for a in node.attribute if a.name == attribute)
        found.f *= factor

    return change


@pytest.mark.parametrize(
    ("change", "op_type", "fused"),
    [
        (scale_attribute("FusedMatMul", "alpha", 1.001), "FusedMatMul", {"mm"}),
        (scale_attribute("QuickGelu", "alpha", 1.01), "QuickGelu", {"silu"}),
    ],
    ids=["FusedMatMul", "QuickGelu"],
)
@pytest.mark.usefixtures("silu_by_sigmoid")
def test_a_fusion_that_is_wrong_is_named_with_the_fx_nodes_that_went_into_it(monkeypatch, change, op_type, fused):
    changing(monkeypatch, change)
    report = dort_compare.compare(mlp(), (torch.randn(4, 16),), optimized=True)
    assert {row.status for row in report.rows} == {"ok"}
    assert report.verdict == "diverge"
    (cause,) = (cause for cause in report.causes if cause.fx_node in fused)
    assert cause.reason.startswith(f"only in the optimized model: {op_type} in place of FX ")
    assert report.optimized is not None
    (row,) = (row for row in report.optimized.rows if row.status == "diverges")
    assert (row.op_types, set(row.fused) >= fused) == ((op_type,), True)
    told = {row["fx_node"]: row for row in report.as_json()["optimized"]["rows"]}
    assert told[row.fx_node]["fused"] == list(row.fused)
    assert {told["mm_1"]["status"]} < {"ok", "inherits"}


@pytest.mark.usefixtures("silu_by_sigmoid")
def test_a_fused_chain_in_half_precision_may_leave_roundings_out_but_not_more(monkeypatch):
    report = dort_compare.compare(mlp(), (torch.randn(4, 16),), autocast=torch.float16, optimized=True)
    assert report.verdict == "agree", str(report)
    assert report.optimized is not None
    assert any("silu" in row.fused and "QuickGelu" in row.op_types for row in report.optimized.rows)
    changing(monkeypatch, scale_attribute("QuickGelu", "alpha", 1.05))
    report = dort_compare.compare(mlp(), (torch.randn(4, 16),), autocast=torch.float16, optimized=True)
    assert report.optimized is not None
    (row,) = (row for row in report.optimized.rows if row.status == "diverges")
    assert "silu" in row.fused


@pytest.mark.usefixtures("as_onnx_runtime_casts")
@pytest.mark.parametrize("seed", range(3))
def test_a_rounding_that_a_fusion_leaves_out_is_no_departure_where_it_is_all_that_is_left(seed):
    """Rounded, both terms cancel but for the rounding; in float32, as ONNX Runtime adds up, to something else."""
    torch.manual_seed(seed)
    x, y, w = (torch.randn(16, 16).half() for _ in range(3))
    module = Of(lambda x, y, w: (x @ y) * w - ((x.float() @ y.float()) * w.float()).half())
    report = dort_compare.compare(module, (x, y, w), optimized=True)
    assert report.verdict == "agree", str(report)
    assert report.optimized is not None
    assert any({"mm", "mul", "sub"} <= set(row.fused) for row in report.optimized.rows)


def test_a_fault_of_the_lowering_is_blamed_once_and_seen_in_the_fused_node_too(monkeypatch):
    original = registered()[aten.silu.default]
    monkeypatch.setitem(registry._TABLE, aten.silu.default, lambda op, x: op.Mul(original(op, x), 1.01))
    report = dort_compare.compare(mlp(), (torch.randn(4, 16),), optimized=True)
    assert [cause.fx_node for cause in report.causes] == ["silu"]
    assert not report.causes[0].reason.startswith("only in the optimized model")
    assert report.optimized is not None
    (row,) = (row for row in report.optimized.rows if row.status == "diverges")
    assert "silu" in row.fused


def plant(monkeypatch: pytest.MonkeyPatch, target, lowering) -> None:
    assert target in registered()
    monkeypatch.setitem(registry._TABLE, target, lowering)


def flip_by_a_descending_range(op, x, dims):
    """What ONNX Runtime's GatherToSliceFusion takes for a slice; the start is no constant, so that it is not folded."""
    zero = op.cast(op.Mul(op.ReduceMax(x, keepdims=0), 0.0), torch.int64)
    last = op.Add(zero, op.const(x.shape[0] - 1))
    return op.Gather(x, op.Range(last, op.const(-1), op.const(-1)), axis=0)


def test_a_bug_of_an_optimizer_of_onnx_runtime_is_told_from_the_op(monkeypatch):
    plant(monkeypatch, aten.flip.default, flip_by_a_descending_range)
    report = dort_compare.compare(Of(lambda x: x.flip(0) * 2), (torch.rand(6, 2),), optimized=True)
    assert {row.status for row in report.rows} == {"ok"}
    cause = report.first_divergence
    assert cause is not None
    assert cause.fx_node == "flip"
    assert "only in the optimized model" in cause.reason
    assert "Slice" in cause.reason
    assert "shape (0, 2) instead of (6, 2)" in cause.reason
    assert not all(seen.ok for seen in report.observed if seen.execution == "lowered")


def test_where_the_program_that_ran_departs_the_optimized_model_is_looked_at_unasked(monkeypatch):
    plant(monkeypatch, aten.flip.default, flip_by_a_descending_range)
    report = dort_compare.compare(Of(lambda x: x.flip(0) * 2), (torch.rand(6, 2),))
    assert "observer: exposing values changed 1 of 1 output, " in str(report)
    assert report.optimized is not None
    asked = dort_compare.compare(Of(lambda x: x.flip(0) * 2), (torch.rand(6, 2),), optimized=True)
    assert [cause.reason for cause in report.causes] == [cause.reason for cause in asked.causes]
    assert report.causes[0].reason.startswith("only in the optimized model: ")


def refusing(*_args: object) -> onnx.ModelProto:
    raise ExecutionError("no optimized model")


@pytest.mark.parametrize(("made", "is_compared"), [(lambda model, *_: model, True), (refusing, False)])
def test_where_the_optimized_model_tells_nothing_the_observer_says_that_the_program_departs(
    monkeypatch, said_by, made, is_compared
):
    plant(monkeypatch, aten.flip.default, flip_by_a_descending_range)
    monkeypatch.setattr(optimized_room, "optimized_model", made)
    report = dort_compare.compare(Of(lambda x: x.flip(0) * 2), (torch.rand(6, 2),))
    cause = report.first_divergence
    assert cause is not None
    assert "the program that ran departs from its lowered model whose values were exposed: shape" in cause.reason
    assert (", though no op of the optimized model departs by itself" in cause.reason) is is_compared
    assert "dort-compare bisect" in cause.reason
    said = [] if is_compared else ["inference graph 0 is not compared optimized: ExecutionError: no optimized model"]
    assert said_by("dort_compare.comparison") == said


def test_twice_the_layout_of_a_square(graphs_of):
    """Where a transposition moves, a name never stands for the transposed value of the same shape."""
    torch.manual_seed(0)
    module = Of(lambda x, a: (a(x.transpose(1, 2)).relu().sum(0, keepdim=True)).transpose(1, 2) + x, a=nn.Linear(8, 8))
    report = dort_compare.compare(module, (torch.randn(8, 8, 8),), backward=True, optimized=True)
    assert report.verdict == "agree", str(report)


def test_symbolic_sizes_agree_optimized_too():
    module = Of(lambda x, a: a(x.reshape(-1, 16)).softmax(-1).sum(0), a=nn.Linear(16, 16))
    report = dort_compare.compare(module, (torch.randn(3, 5, 16),), backward=True, dynamic=True, optimized=True)
    assert report.verdict == "agree", str(report)
    assert report.optimized is not None
    assert {row.status for row in report.optimized.rows} == {"ok"}


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(
            lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.LayerNorm(16)), id="gelu"
        ),
        pytest.param(lambda: nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 8, 3), nn.ReLU()), id="conv"),
        pytest.param(lambda: nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3), nn.LogSoftmax(-1)), id="tanh"),
    ],
)
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
@pytest.mark.slow
def test_other_layers_agree_optimized_too(module, dtype):
    torch.manual_seed(0)
    x = torch.randn(4, 16)
    report = dort_compare.compare(module(), (x,), backward=True, autocast=dtype, optimized=True)
    assert report.verdict == "agree", str(report)
