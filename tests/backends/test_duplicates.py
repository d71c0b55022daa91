"""Calls made twice become one; what only looks the same, and what is to stay apart, does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn
from torch._functorch import config as functorch_config
from torch._functorch.compile_utils import fx_graph_cse
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import dropout

from dort_compare import DebugBackend
from dort_compare.backends import forward_backward
from dort_compare.backends.duplicates import merge_duplicates
from dort_compare.models import build
from dort_compare.models.llama import LlamaConfig

Function = Callable[[Tensor], object]
X = torch.rand(2, 3)
MINUS = complex(-0.0, 0.0)


@torch.library.custom_op("dort_tests::counted", mutates_args=())
def counted(x: Tensor) -> Tensor:
    """An operator that torch knows nothing about: it may give something else each time."""
    return x + 1


counted.register_fake(torch.empty_like)

TRAINING = """
import sys, torch, dort_compare
torch.compile(torch.nn.Linear(3, 3), backend="dort", options={"cache": False})(torch.rand(2, 3)).sum().backward()
sys.exit("torch._inductor.lowering" in sys.modules)
"""


def traced(function: Function) -> fx.Graph:
    return make_fx(function, tracing_mode="symbolic")(X).graph


def merged(graph: fx.Graph) -> fx.Graph:
    merge_duplicates(graph)
    graph.lint()
    return graph


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sin() + x.sin(),
        lambda x: x.sum([0, 1]) * x.sum([0, 1]),
        lambda x: x * float("2.5") + x * float("2.5"),
        lambda x: x.topk(1)[0] - x.topk(1)[0],
        lambda x: x.sin().exp() + x.sin().exp(),
        lambda x: x.view(x.shape[0] * x.shape[1]) + x.view(x.shape[0] * x.shape[1]),
    ],
    ids=["one argument", "lists", "numbers", "several results", "a chain", "symbolic sizes"],
)
def test_the_same_calls_are_one(function: Function) -> None:
    graph = traced(function)
    before, theirs = len(graph.nodes), len(fx_graph_cse(graph).nodes)
    assert len(merged(graph).nodes) == theirs < before


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.full_like(x, 0.0) + torch.full_like(x, -0.0),
        lambda x: torch.full_like(x, 0j, dtype=torch.cfloat) + torch.full_like(x, MINUS, dtype=torch.cfloat),
        lambda x: torch.full([2], 1) + torch.full([2], 1.0) + torch.full([2], True),
        lambda x: (x.sin(), x.sin()),
        lambda x: (x.sin().view(-1), x.sin().view(-1)),
        lambda x: (x.topk(1)[0], x.topk(1)[0]),
        lambda x: counted(x) + counted(x),
        lambda x: dropout(x) - dropout(x),
        lambda x: torch.rand_like(x) - torch.rand_like(x),
        lambda x: x.nonzero().sum() + x.nonzero().sum(),
    ],
    ids=[
        "zeros",
        "complex zeros",
        "types",
        "outputs",
        "views",
        "returned results",
        "operators of others",
        "masks",
        "draws",
        "sizes of a run",
    ],
)
def test_what_is_to_stay_apart(function: Function) -> None:
    assert len(merged(traced(function)).nodes) == len(traced(function).nodes)


def test_what_is_read_before_and_after_a_write() -> None:
    aten, graph = torch.ops.aten, fx.Graph()
    x = graph.placeholder("x")
    before = graph.call_function(aten.sin.default, (x,))
    graph.call_function(aten.copy_.default, (x, before))
    after = graph.call_function(aten.sin.default, (x,))
    graph.output((graph.call_function(aten.add.Tensor, (before, after)),))
    assert len(merged(graph).find_nodes(op="call_function", target=aten.sin.default)) == 2


@pytest.mark.parametrize("part", ["attention", "decoder", "model"])
def test_as_much_is_merged_as_by_torch(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []

    def count(graph: fx.Graph) -> None:
        before, theirs = len(graph.nodes), len(fx_graph_cse(graph).nodes)
        merge_duplicates(graph)
        counts.append((before, theirs, len(graph.nodes)))

    monkeypatch.setattr(forward_backward, "merge_duplicates", count)
    model, inputs = build(part, LlamaConfig(layers=1), batch=1, seq=4)
    torch.compile(model, backend=DebugBackend(providers=["cpu"]))(*inputs)
    ((before, theirs, ours),) = counts
    assert ours == theirs < before


class Turned(nn.Module):
    """Zeros of both signs, on either side of where angles jump."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([-1.0, -2.0]))

    def forward(self, x: Tensor) -> Tensor:
        above, below = torch.full_like(x, 0.0), torch.full_like(x, -0.0)
        return torch.atan2(above, self.weight * x) + 3 * torch.atan2(below, self.weight * x)


@pytest.mark.parametrize("backend", ["dort", "dort_debug"])
def test_zeros_of_both_signs(backend: str) -> None:
    model, x = Turned(), torch.ones(2)
    torch.testing.assert_close(torch.compile(model, backend=backend)(x), model(x))


def test_whoever_switches_torchs_pass_off_switches_ours_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_backward, "merge_duplicates", lambda graph: pytest.fail("merged"))
    with functorch_config.patch(cse=False):
        torch.compile(nn.Linear(3, 3), backend="dort_debug")(torch.ones(2, 3)).sum().backward()


def test_checks_are_no_writes() -> None:
    aten, graph = torch.ops.aten, fx.Graph()
    x, is_right = graph.placeholder("x"), graph.placeholder("is_right")
    before = graph.call_function(aten.sin.default, (x,))
    graph.call_function(aten._assert_scalar.default, (is_right, "wrong"))
    after = graph.call_function(aten.sin.default, (x,))
    graph.output((graph.call_function(aten.add.Tensor, (before, after)),))
    left = merged(graph)
    assert len(left.find_nodes(op="call_function", target=aten.sin.default)) == 1
    assert len(left.find_nodes(op="call_function", target=aten._assert_scalar.default)) == 1


def test_training_does_not_load_inductor() -> None:
    subprocess.run([sys.executable, "-c", TRAINING], check=True, timeout=120)
