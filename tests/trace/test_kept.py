"""A graph with nodes kept in float32, on real forward and backward graphs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dort_compare.backends import DebugBackend
from dort_compare.compiled import graph_run, run_compiled
from dort_compare.models import LlamaConfig, build
from dort_compare.trace.call import Call
from dort_compare.trace.kept import Kept
from dort_compare.trace.modules import run_module
from dort_compare.trace.rounding_probe import RoundingProbe
from dort_compare.trace.training_step import TrainingStep, training_steps

CONFIG = LlamaConfig(hidden=32, heads=4, kv_heads=2, intermediate=48, vocabulary=50, layers=1)


def step_of(model: nn.Module, call: Call) -> TrainingStep:
    backend = DebugBackend(fallback=False)
    run_compiled(model, call, backend)
    (step,) = training_steps([graph_run(graph, dict(model.named_parameters())) for graph in backend.graphs])
    return step


@pytest.fixture(scope="module", params=["eager", "sdpa"])
def llama(request):
    config = LlamaConfig(**{**vars(CONFIG), "attention": request.param})
    model, inputs = build("model", config, seq=16, mask=True)
    call = Call(inputs, backward=True, autocast=torch.float16)
    return model, call, step_of(model, call)


def surveyed(step):
    probes = {run.graph_module: RoundingProbe(run.graph_module) for run in step.graphs}
    values = step.run(probes.__getitem__, {})
    rounding = {name for probe in probes.values() for name in probe.rounding}
    return values, rounding, {name for probe in probes.values() for name in probe.exact}


def test_nothing_kept_is_the_model_as_it_is(llama):
    model, call, step = llama
    _, _, exact = surveyed(step)
    eager = run_module(model, dict(model.named_parameters()), call)
    values = step.run(lambda graph: Kept(graph, set(), exact), {})
    (output,) = (value for (kind, _), value in values.items() if kind == "output")
    assert torch.equal(output, eager.outputs["output"])
    gradients = {name: value for (kind, name), value in values.items() if kind == "gradient"}
    assert gradients.keys() == eager.gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(
            gradient, eager.gradients[name], rtol=0, atol=2e-3 * eager.gradients[name].abs().max()
        )


def test_everything_kept_is_float32(llama):
    _, _, step = llama
    in_float64, rounding, exact = surveyed(step)
    kept = step.run(lambda graph: Kept(graph, rounding, exact), {})
    assert kept.keys() == in_float64.keys()
    for key, value in kept.items():
        assert ((value - in_float64[key]).norm() / in_float64[key].norm()).item() < 2e-6, key


def test_movement_rounds_nothing_and_arithmetic_does(llama):
    _, _, step = llama
    _, rounding, exact = surveyed(step)
    targets = {node.name: str(node.target) for run in step.graphs for node in run.graph_module.graph.nodes}
    assert "aten.mm.default" in {targets[name] for name in rounding}
    assert "aten._to_copy.default" in {targets[name] for name in rounding}
    assert {"aten.view.default", "aten.transpose.int"} <= {targets[name] for name in exact}
    assert not {"aten.view.default", "aten.t.default", "aten.neg.default"} & {targets[name] for name in rounding}


def test_a_kept_value_is_rounded_only_for_half_precision_readers():
    class Chain(nn.Module):
        def forward(self, x):
            squared = x * x
            return squared.mT / 300 + 1

    x = torch.full((2, 3), 300.0, dtype=torch.float16)
    step = step_of(Chain(), Call((x,)))
    _, rounding, exact = surveyed(step)
    names = {str(n.target): n.name for n in step.forward.graph_module.graph.nodes if n.name in rounding}
    both = {names["aten.mul.Tensor"], names["aten.div.Tensor"]}

    def result(kept):
        (value,) = step.run(lambda graph: Kept(graph, kept, exact), {}).values()
        return value.half()[0, 0].item()

    assert result(set()) == result({names["aten.mul.Tensor"]}) == torch.inf
    assert result(both) == pytest.approx(90000 / 300 + 1, rel=1e-3)


def test_what_overflows_or_vanishes_does_not_hide_a_rounding():
    """On operands that are inf or zero, every dtype computes the same."""

    class Hidden(nn.Module):
        def forward(self, x):
            return (x * 1e4 * 1e4 * 0.7).mT, x * 1e-4 * 1e-4 * 0.7

    step = step_of(Hidden(), Call((torch.ones(2, 3, dtype=torch.float16),)))
    _, rounding, _ = surveyed(step)
    graph = step.forward.graph_module.graph
    assert rounding == {node.name for node in graph.nodes if str(node.target) == "aten.mul.Tensor"}
