"""What to keep in float32: planted causes are found, carried out on the real model, and nothing else is asked for."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from of_function import Of
from torch import nn

from dort_compare import compare
from dort_compare.backends import DebugBackend
from dort_compare.compiled import graph_run, run_compiled
from dort_compare.errors import UsageError
from dort_compare.measure.half import suggest
from dort_compare.measure.half.half_floor import relative_error
from dort_compare.measure.half.suggest import suggest_fp32
from dort_compare.models import LlamaConfig, build
from dort_compare.report.half import suggestion_lines
from dort_compare.trace.call import Call
from dort_compare.trace.modules import run_module


class Scores(nn.Module):
    """Attention weights; scaled only after the product, which leaves float16 where keys are large."""

    def forward(self, query, key):
        wide = torch.autocast("cpu", enabled=False) if self.kept else nullcontext()
        with wide:
            if self.kept:
                query, key = query.float(), key.float()
            scores = (query @ key.mT) * 1e-4
        return scores.softmax(-1)

    kept = False


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.query, self.key, self.value = (nn.Linear(32, 32, bias=False) for _ in range(3))
        self.scores = Scores()
        self.output = nn.Linear(32, 32)
        self.size = 1.0

    def forward(self, x):
        x = self.norm(x)
        weights = self.scores(self.query(x) * self.size, self.key(x) * self.size)
        return self.output(weights @ self.value(x))


class Variance(nn.Module):
    """The mean of squares less the square of the mean: in half precision nothing is left of it."""

    kept = False

    def forward(self, x):
        dtype = x.dtype
        if self.kept:
            x = x.float()
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return ((x - mean) * torch.rsqrt(variance + 1e-2)).to(dtype)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
        self.norm = Variance()

    def forward(self, x):
        return self.second(self.norm(self.first(x)))


def attention(size: float) -> tuple[nn.Module, Call]:
    model = Attention()
    model.size = size
    return model, Call((torch.randn(2, 16, 32),), backward=True, autocast=torch.float16)


def normed() -> tuple[nn.Module, Call]:
    model = Normed()
    nn.init.constant_(model.first.bias, 6.0)
    return model.bfloat16(), Call((torch.randn(64, 64).bfloat16(),), backward=True)


def suggested(model, call, target=None):
    backend = DebugBackend(fallback=False)
    run_compiled(model, call, backend)
    return suggest_fp32([graph_run(graph, dict(model.named_parameters())) for graph in backend.graphs], target)


def eager_errors(model, call) -> dict[str, float]:
    """The relative errors of the real, uncompiled model's gradients against the model in float64."""
    gradients = run_module(model, dict(model.named_parameters()), call).gradients
    double = type(model)().double()
    double.load_state_dict(model.state_dict())
    for name, value in vars(model).items():
        if isinstance(value, float):
            setattr(double, name, value)
    exact_call = replace(call, args=tuple(arg.double() for arg in call.args), autocast=None)
    exact = run_module(double, dict(double.named_parameters()), exact_call).gradients
    return {name: relative_error(exact[name], gradient) for name, gradient in gradients.items()}


def floors(suggestion) -> dict[str, float]:
    return {error.name: error.floor for error in suggestion.errors if error.kind == "gradient"}


def test_scores_that_overflow_are_found_and_kept_in_the_real_model():
    model, call = attention(size=300.0)
    suggestion = suggested(model, call)
    assert suggestion.mend == "float32", suggestion
    assert {node.module for node in suggestion.nodes} == {"scores"}
    forward = [node.target for node in suggestion.nodes if node.phase == "forward"]
    assert forward == ["aten.bmm.default", "aten.mul.Tensor"]
    assert max(error.before for error in suggestion.errors) == torch.inf
    assert all(error.after <= error.floor for error in suggestion.errors)
    floor = floors(suggestion)
    before = eager_errors(model, call)
    assert any(before[name] > floor[name] for name in floor)
    model.scores.kept = True
    after = eager_errors(model, call)
    assert floor.keys() == after.keys()
    assert all(after[name] <= floor[name] for name in floor), (after, floor)


def test_a_variance_that_cancels_is_found_and_kept_in_the_real_model():
    model, call = normed()
    suggestion = suggested(model, call)
    assert suggestion.mend == "float32", suggestion
    assert {node.module for node in suggestion.nodes} == {"norm"}
    floor = floors(suggestion)
    before = eager_errors(model, call)
    assert any(before[name] > floor[name] for name in floor)
    model.norm.kept = True
    after = eager_errors(model, call)
    assert all(after[name] <= floor[name] for name in floor), (after, floor)


def test_none_of_the_nodes_can_be_spared():
    suggestion = suggested(*attention(size=300.0))
    text = "\n".join(suggestion_lines(suggestion))
    assert "module scores at" in text
    assert "bmm (aten.bmm.default)" in text
    assert suggestion.runs <= 30
    assert json.loads(json.dumps(suggestion.to_json(), allow_nan=False))["mend"] == "float32"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_nothing_is_needed_where_rounding_explains_the_errors(dtype):
    model, call = attention(size=1.0)
    suggestion = suggested(model, replace(call, autocast=dtype))
    assert suggestion.mend == "none needed", suggestion
    assert suggestion.nodes == ()
    assert suggestion.runs == 2
    assert {error.kind for error in suggestion.errors} == {"output", "gradient"}


def test_nothing_is_needed_in_float32():
    model, call = attention(size=1.0)
    suggestion = suggested(model, replace(call, autocast=None))
    assert (suggestion.mend, suggestion.errors, suggestion.lines) == ("none needed", (), 0)


def test_a_gradient_that_is_zero_but_for_rounding_is_not_judged():
    """The bias of the keys moves all scores of a row alike, which softmax does not see."""
    model, call = attention(size=1.0)
    model.key = nn.Linear(32, 32)
    suggestion = suggested(model, call)
    assert suggestion.mend == "none needed", suggestion
    assert "key.bias: zero but for rounding" in suggestion.reason
    assert "key.bias" not in floors(suggestion)


class Deep(nn.Sequential):
    def __init__(self):
        super().__init__(*[nn.Linear(64, 64) for _ in range(4)])


@pytest.mark.parametrize("factor", [1e-5, 1e-12])
def test_gradients_that_underflow_everywhere_ask_for_a_loss_scale(factor):
    """At the smaller factor nothing but zeros is left where the gradients enter the graph."""
    call = Call((torch.randn(64, 64),), {}, True, lambda out: out.float().pow(2).mean() * factor, torch.float16)
    torch.manual_seed(1)
    model = Deep()
    suggestion = suggested(model, call)
    assert suggestion.mend == "loss scale", suggestion
    assert suggestion.nodes == ()
    assert suggestion.loss_scale >= 2**10
    assert f"multiply the loss by {suggestion.loss_scale:.0f}" in "\n".join(suggestion_lines(suggestion))


def test_a_loss_scale_that_cures_is_verified():
    """What enters is well in range here; what small weights make of it on the way back is not."""
    model = Deep()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.1)
    call = Call((torch.randn(64, 64) * 30,), {}, True, lambda out: (out.float() * 1e-3).sum(), torch.float16)
    suggestion = suggested(model, call)
    assert suggestion.mend == "loss scale", suggestion
    assert any(error.before > error.floor for error in suggestion.errors)
    assert all(error.after <= error.floor for error in suggestion.errors)
    scaled = replace(call, loss=lambda out: (out.float() * 1e-3).sum() * suggestion.loss_scale)
    unscaled = replace(call, loss=lambda out: (out * 1e-3 * suggestion.loss_scale).sum())
    gradients = run_module(model, dict(model.named_parameters()), scaled).gradients
    double = Deep().double()
    double.load_state_dict(model.state_dict())
    exact = run_module(
        double, dict(double.named_parameters()), replace(unscaled, args=(call.args[0].double(),), autocast=None)
    )
    for name, floor in floors(suggestion).items():
        assert relative_error(exact.gradients[name], gradients[name]) <= floor


def test_a_loss_scale_cures_gradients_beside_an_output_that_nothing_does():
    """The output is subnormal in float16, whatever comes behind it."""

    small = Of(lambda x, linear: (linear(x).tanh() * 1e-6).mean(), linear=nn.Linear(16, 16))
    suggestion = suggested(small, Call((torch.randn(64, 16),), backward=True, autocast=torch.float16))
    assert (suggestion.mend, suggestion.out_of_reach) == ("loss scale", ("mean",)), suggestion
    assert "1 beyond it even with everything in float32" in suggestion.reason
    assert "nothing, but scale the loss" in "\n".join(suggestion_lines(suggestion))
    gradients = [error for error in suggestion.errors if error.kind == "gradient"]
    assert gradients
    assert all(error.after <= error.floor < error.before for error in gradients), gradients


def test_a_loss_scale_is_told_that_cures_beside_float32_alone():
    """By itself it brings nothing inside a target of 4e-4, and neither does all of float32 by itself."""

    def cascade(x, linear):
        return (linear(x).tanh().sin().tanh().sin().tanh() * 1e-4).mean() * 1e-1

    model = Of(cascade, linear=nn.Linear(16, 16, bias=False)).half()
    suggestion = suggested(model, Call((torch.randn(64, 16).half(),), backward=True), 4e-4)
    assert suggestion.mend == "loss scale and float32", suggestion
    (gradient,) = [error for error in suggestion.errors if error.kind == "gradient"]
    assert gradient.after <= 4e-4 < gradient.before
    assert "linear.weight" not in suggestion.out_of_reach


def test_says_that_no_few_lines_suffice(monkeypatch):
    """At a target that rounding anywhere exceeds, every line is needed."""
    monkeypatch.setattr(suggest, "FEW", 1)
    model, call = Deep(), Call((torch.randn(64, 64),), backward=True, autocast=torch.bfloat16)
    suggestion = suggested(model, call, target=1e-4)
    assert suggestion.mend == "none suffices", suggestion
    assert "more than 1 lines" in suggestion.reason
    assert suggestion.nodes == ()
    gradients = [error for error in suggestion.errors if error.kind == "gradient"]
    assert all(error.after < 1e-5 < error.before for error in gradients)


def test_says_what_float32_cannot_mend():
    """An output whose exact value float16 does not hold; and a target that no float32 reaches."""
    large = Of(lambda x, linear: linear(x) * 1e4, linear=nn.Linear(8, 8))
    suggestion = suggested(large, Call((torch.ones(4, 8) * 100,), autocast=torch.float16))
    assert suggestion.mend == "none suffices", suggestion
    assert suggestion.out_of_reach == ("mul",)
    model, call = Deep(), Call((torch.randn(64, 64),), backward=True, autocast=torch.bfloat16)
    suggestion = suggested(model, call, target=1e-9)
    assert "0.weight" in suggestion.out_of_reach
    assert "beyond it even with everything in float32" in suggestion.reason


@pytest.mark.parametrize("part", [pytest.param("decoder", marks=pytest.mark.slow), "model"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_llama_needs_nothing(part, dtype):
    config = LlamaConfig(hidden=32, heads=4, kv_heads=2, intermediate=48, vocabulary=50, layers=1)
    model, inputs = build(part, config, seq=16, mask=part == "model")
    suggestion = suggested(model, Call(inputs, backward=True, autocast=dtype))
    assert suggestion.mend == "none needed", suggestion
    assert all(error.before < error.floor / 4 for error in suggestion.errors), suggestion.worst


def test_compare_takes_a_switch_or_a_relative_error():
    model, call = attention(size=300.0)
    report = compare(model, call.args, autocast=torch.float16, backward=True, suggest_fp32=True)
    assert report.suggestion.mend == "float32"
    assert report.as_json()["suggest_fp32"]["nodes"][0]["module"] == "scores"
    assert "to keep in float32: these lines" in str(report)
    with pytest.raises(UsageError, match="relative error between 0 and 1"):
        compare(model, call.args, suggest_fp32=3.0)
