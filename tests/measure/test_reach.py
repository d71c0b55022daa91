"""What a value reaches, told from the FX graphs alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from dort_compare import DebugBackend
from dort_compare.compiled import graph_run, run_compiled
from dort_compare.measure.reach import Lineage
from dort_compare.trace import GraphRun
from dort_compare.trace.call import Call
from dort_compare.trace.training_step import training_steps


class Two(nn.Module):
    """Two branches that never meet: what enters one is not in the other."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(3, 4)
        self.right = nn.Linear(3, 4)

    def forward(self, x: Any) -> Any:
        return self.left(x).exp(), self.right(x).tanh()


def runs_of(model: nn.Module) -> list[GraphRun]:
    """Its graphs in the order in which they ran, forward and backward."""
    backend = DebugBackend()
    run_compiled(model, Call((torch.randn(2, 3),), backward=True), backend)
    graphs = sorted(backend.graphs, key=lambda graph: graph.runs[0].number)
    return [graph_run(graph, dict(model.named_parameters())) for graph in graphs]


def runs_of_two() -> list[GraphRun]:
    """Of two branches, its forward and its backward graph."""
    return runs_of(Two())


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


def test_gradients_have_the_names_of_inputs_where_the_caller_has_none() -> None:
    """As in a dump of a backend that nobody told the names of parameters."""
    lineage = Lineage([replace(run, input_names={}) for run in runs_of_two()])
    assert lineage.reached(0, "exp").gradients == ("primals_1", "primals_2")


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


def test_gradients_that_nothing_leads_to_are_known() -> None:
    lineage = Lineage(runs_of_two())
    assert lineage.unreached({0: ["exp"]}) == {"right.weight", "right.bias"}
    assert lineage.unreached({0: ["exp", "tanh"]}) == set()
    runs = runs_of(Broken())
    assert Lineage(runs).unreached({runs[0].index: ["exp"]}) == set()


class Checked(nn.Module):
    """Behind one of two branches a factorization, which torch checks: a token is the first input of its graph."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(3, 2)
        self.right = nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        return torch.linalg.inv(self.left(x) + 3 * torch.eye(2)).exp(), self.right(x).tanh()


def test_gradients_bear_their_names_behind_a_check_too() -> None:
    lineage = Lineage(runs_of(Checked()))
    assert lineage.reached(0, "detach").gradients == ("left.weight", "left.bias")
    assert lineage.reached(0, "tanh").gradients == ("right.weight", "right.bias")
    assert lineage.unreached({0: ["tanh"]}) == {"left.weight", "left.bias"}


def dropping(*first: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), *first, nn.Dropout(0.5), nn.Linear(4, 3))


def test_a_value_reaches_what_lies_behind_the_cuts_of_its_graph() -> None:
    """Dropout runs in torch, between two pieces."""
    runs = runs_of(dropping(nn.GELU()))
    assert [run.phase for run in runs[:3]] == ["forward", "forward", "backward"]
    lineage = Lineage(runs)
    gelu = lineage.reached(runs[0].index, "gelu")
    assert gelu.outputs == ("addmm_1",)
    assert gelu.gradients == ("0.weight", "0.bias", "3.weight")
    assert not gelu.beyond
    assert lineage.reached(runs[1].index, "addmm_1").gradients == ()
    assert lineage.is_result(runs[1].index, "addmm_1")
    assert not lineage.is_result(runs[0].index, "gelu")


@pytest.mark.parametrize("model", [dropping(nn.GELU()), nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Dropout(0.5))])
def test_pieces_of_an_unknown_whole_say_that_others_read_them(model: nn.Module) -> None:
    """As a dump has them; also where there is one of each phase."""
    runs = [replace(run, whole=None) for run in runs_of(model)]
    gelu = Lineage(runs).reached(runs[0].index, "gelu")
    assert (gelu.values, gelu.outputs, gelu.gradients, gelu.beyond) == (1, (), (), True)
    assert training_steps(runs_of(model)) == []


class Broken(nn.Module):
    """Two graphs of one part each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        y = self.first(x).exp()
        torch._dynamo.graph_break()
        return self.second(y).tanh()


def test_behind_a_graph_break_others_may_read_what_a_graph_returns() -> None:
    runs = runs_of(Broken())
    lineage = Lineage(runs)
    exp = lineage.reached(runs[0].index, "exp")
    assert exp.outputs == ("exp",)
    assert exp.beyond
    assert lineage.reached(runs[1].index, "tanh").beyond
    lost = next(run for run in runs if run.phase == "backward")
    unread = next(node.name for node in lost.graph_module.graph.nodes if node.op == "call_function")
    assert lineage.reached(lost.index, unread).beyond
    assert not lineage.reached(lost.index, "nothing").beyond


def test_what_a_loss_makes_of_an_output_is_not_known() -> None:
    runs = runs_of_two()
    lineage = Lineage(runs, has_loss=True)
    assert lineage.reached(0, "exp").beyond
    assert lineage.unreached({0: ["exp"]}) == set()
    first = next(node.name for node in runs[1].graph_module.graph.nodes if node.op == "call_function")
    assert not lineage.reached(1, first).beyond
