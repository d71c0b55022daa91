"""What the backward graph computes again instead of being handed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import aot_function
from torch import Tensor, fx
from torch._dynamo.utils import counters

from dort_compare.backends import recompute
from dort_compare.backends.forward_backward import rewritten_and_cut
from dort_compare.lowering import decompositions

Function = Callable[[Tensor, Tensor, Tensor], Tensor]
SCORES = (2, 3, 8, 8)


def handed_on(function: Function) -> tuple[list[Any], Tensor]:
    """The values that a backward graph is given beside gradients, and the gradient of the first operand."""
    graphs: list[fx.GraphModule] = []

    def keep(graph: fx.GraphModule, _: Any) -> fx.GraphModule:
        graphs.append(graph)
        return graph

    compiled = aot_function(function, keep, keep, partition_fn=rewritten_and_cut, decompositions=decompositions())
    torch.manual_seed(0)
    operands = [torch.randn(2, 3, 8, 4, requires_grad=True) for _ in range(3)]
    torch.manual_seed(1)
    gradient = torch.autograd.grad(compiled(*operands).square().sum(), operands[0])[0]
    torch.manual_seed(1)
    expected = torch.autograd.grad(function(*operands).square().sum(), operands[0])[0]
    torch.testing.assert_close(gradient, expected)
    given = [node for node in graphs[1].graph.find_nodes(op="placeholder") if "tangents" not in node.name]
    return [node.meta["val"] for node in given], gradient


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "_LARGE", 1)


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT * 0.5, -1) @ v


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    seen = q.new_ones(8, 8, dtype=torch.bool).tril()
    bias = torch.where(seen, q.new_zeros(()), torch.finfo(q.dtype).min)
    return torch.softmax(q @ k.mT + bias, -1) @ v


def masked_by_input(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT + v[:, :1, :, :1].detach(), -1) @ v


def filled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax((q @ k.mT).masked_fill(torch.full_like(v[0, 0], 1.0)[:, :1] < 0, -torch.inf), -1) @ v


@pytest.mark.parametrize("function", [plain, masked, masked_by_input, filled])
def test_probabilities_are_not_handed_on(function: Function) -> None:
    given, _ = handed_on(function)
    assert max(value.numel() for value in given) == 2 * 3 * 8 * 4


def test_small_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "_LARGE", 2 * 3 * 8 * 8 + 1)
    given, _ = handed_on(plain)
    assert SCORES in [tuple(value.shape) for value in given]


def biased_by_head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT + (v @ v.mT).detach(), -1) @ v


def of_no_product(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(torch.cat([q, k], -1), -1) @ v


@pytest.mark.parametrize("function", [biased_by_head, of_no_product])
def test_nor_are_those_of_which_more_would_be_computed(function: Function) -> None:
    given, _ = handed_on(function)
    assert SCORES in [tuple(value.shape) for value in given]


def test_what_is_computed_again_is_decided_without_a_guard() -> None:
    """A size of which a softmax is made does not stop the graph from taking another."""
    torch._dynamo.reset()
    counters["stats"].clear()
    compiled = torch.compile(lambda x, places: x[places].softmax(-1), backend="dort")
    for size in (60, 9000):
        x, places = torch.randn(size, requires_grad=True), torch.randint(size, SCORES)
        torch._dynamo.mark_dynamic(x, 0)
        gradient = torch.autograd.grad(compiled(x, places).square().sum(), x)[0]
        torch.testing.assert_close(gradient, torch.autograd.grad(x[places].softmax(-1).square().sum(), x)[0])
    assert counters["stats"]["unique_graphs"] == 1


def scaled_by_constants(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q * torch.arange(8.0)[:, None].cos() * k.new_full((8, 1), 2.0)).sin() + k + v


def test_what_depends_on_no_input_is_not_handed_on() -> None:
    given, _ = handed_on(scaled_by_constants)
    assert [tuple(value.shape) for value in given] == [(2, 3, 8, 4)]


def drawn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q * torch.rand(8, 1) + k + v


def test_what_is_drawn_is_handed_on() -> None:
    given, _ = handed_on(drawn)
    assert [tuple(value.shape) for value in given] == [(8, 1)]


def of_a_constant_that_is_not_lowered(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    turned = torch.polar(torch.ones(8, 4), torch.arange(32.0).view(8, 4)).acos()
    return (q * torch.view_as_real(turned).sum(-1)).sin() + k + v


def test_what_is_not_lowered_is_computed_once() -> None:
    given, _ = handed_on(of_a_constant_that_is_not_lowered)
    assert [tuple(value.shape) for value in given if value.is_complex()] == [(8, 4)]
