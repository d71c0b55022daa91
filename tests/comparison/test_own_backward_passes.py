"""Gradients that a model takes by backward passes of its own, as reversible layers do that compute activations anew."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from dort_compare import compare


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
