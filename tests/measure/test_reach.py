"""What a value reaches, told from the FX graphs alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dort_compare import DebugBackend
from dort_compare.compiled import graph_run, run_compiled
from dort_compare.measure.reach import Lineage
from dort_compare.trace import GraphRun
from dort_compare.trace.modules import Call
from dort_compare.trace.training_step import training_steps


class Two(nn.Module):
    """Two branches that never meet: what enters one is not in the other."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(3, 4)
        self.right = nn.Linear(3, 4)

    def forward(self, x: Any) -> Any:
        return self.left(x).exp(), self.right(x).tanh()


def runs_of_two() -> list[GraphRun]:
    """Its forward and its backward graph."""
    model = Two()
    backend = DebugBackend()
    run_compiled(model, Call((torch.randn(2, 3),), backward=True), backend)
    return [graph_run(graph, dict(model.named_parameters())) for graph in backend.graphs]


def test_a_gradient_is_known_by_its_name_and_an_output_by_its_place() -> None:
    runs = runs_of_two()
    lineage, (step,) = Lineage(runs), training_steps(runs)
    left, right = (step.gradients[name].name for name in ("left.weight", "right.weight"))
    assert lineage.may_be(1, left, "gradient", "left.weight")
    assert not lineage.may_be(1, right, "gradient", "left.weight")
    assert lineage.may_be(1, right, "gradient", "a name of the caller's")
    assert not lineage.may_be(1, left, "output", "left.weight")
    assert lineage.may_be(0, "exp", "output", "0")
    assert not lineage.may_be(0, "exp", "gradient", "left.weight")


def test_a_value_reaches_its_own_branch_in_forward_and_backward() -> None:
    runs = runs_of_two()
    lineage = Lineage(runs)
    exp = lineage.reached(0, "exp")
    assert exp.outputs == ("exp",)
    assert exp.gradients == ("left.weight", "left.bias")
    assert lineage.reached(0, "tanh").gradients == ("right.weight", "right.bias")
    named = {node.name for node in runs[1].graph_module.graph.nodes if node.op == "call_function"}
    assert 1 < exp.values < len(named)
    first = next(node.name for node in runs[1].graph_module.graph.nodes if node.op == "call_function")
    backward = lineage.reached(1, first)
    assert backward.outputs == ()
    assert set(backward.gradients) < {"left.weight", "left.bias", "right.weight", "right.bias"}
