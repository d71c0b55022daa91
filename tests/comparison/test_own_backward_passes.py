"""Gradients that a model takes by backward passes of its own, as reversible layers do that compute activations anew."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from dort_compare import compare
from dort_compare.errors import DortError


class Again(torch.autograd.Function):
    """A block whose activations are not kept; ``factor`` scales the gradients of its parameters."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, block: nn.Linear, factor: float) -> Tensor:
        ctx.block, ctx.factor = block, factor
        ctx.save_for_backward(x)
        with torch.no_grad():
            return block(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            y = ctx.block(x.detach())
        torch.autograd.backward(y, gradient * ctx.factor)
        return gradient @ ctx.block.weight, None, None


class Reversible(nn.Module):
    def __init__(self, wrong: float = 1.0) -> None:
        super().__init__()
        self.into, self.block, self.out = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.wrong = wrong

    def forward(self, x: Tensor) -> Tensor:
        factor = self.wrong if torch.compiler.is_compiling() else 1.0
        return self.out(Again.apply(self.into(x), self.block, factor) + self.block(x.repeat(1, 2)))


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "agree"), (1.5, "diverge")])
def test_they_are_compared(factor: float, verdict: str) -> None:
    torch.manual_seed(0)
    model = Reversible(factor)
    report = compare(model, (torch.randn(3, 4),), backward=True)
    assert report.verdict == verdict, str(report)
    gradients = {row.name: row.ok for row in report.outputs if row.kind == "gradient"}
    assert gradients.keys() == dict(model.named_parameters()).keys()
    wrong = {name for name, ok in gradients.items() if not ok}
    assert wrong == ({"block.weight", "block.bias"} if factor != 1.0 else set())


def test_the_gradients_of_the_caller_are_left_alone() -> None:
    torch.manual_seed(0)
    model, x = Reversible(), torch.randn(3, 4)
    model(x).sum().backward()
    model.into.weight.grad = None
    before = {name: parameter.grad for name, parameter in model.named_parameters()}
    copies = {name: gradient.clone() for name, gradient in before.items() if gradient is not None}
    compare(model, (x,), backward=True)
    assert all(parameter.grad is before[name] for name, parameter in model.named_parameters())
    assert_close({name: before[name] for name in copies}, copies, rtol=0, atol=0)


class Descending(nn.Module):
    """A model that reads the gradient that its parameter has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.weight.grad = torch.ones(4)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight - 0.1 * self.weight.grad


@pytest.mark.parametrize("backward", [False, True])
def test_a_model_may_read_the_gradients_that_are_there(*, backward: bool) -> None:
    report = compare(Descending(), (torch.randn(3, 4),), backward=backward)
    assert report.verdict == "agree", str(report)


def test_gradients_that_no_longer_fit_their_parameters_are_left_alone() -> None:
    model = nn.Linear(4, 4)
    model(torch.randn(2, 4)).sum().backward()
    before = [parameter.grad for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.data = parameter.data.double()
    with contextlib.suppress(DortError):  # torch may refuse to compile it
        compare(model, (torch.randn(3, 4).double(),), backward=True)
    assert all(a is b.grad for a, b in zip(before, model.parameters(), strict=True))
