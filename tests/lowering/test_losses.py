"""Gradients of losses, where torch's decompositions of them are not its kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from every_pair import every_pair
from torch import Tensor
from torch.nn import functional as F

NUMBERS = torch.tensor([5.0, -5.0, 10.0, 17.0, 20.0, -20.0, 300.0, 1.0, -1.0, 0.5, 0.0, 2.5])
LOSSES: dict[str, Callable[..., Tensor]] = {
    "huber": lambda x, y, **options: F.huber_loss(x, y, delta=2.5, **options),
    "mse": F.mse_loss,
    "smooth_l1": lambda x, y, **options: F.smooth_l1_loss(x, y, beta=0.5, **options),
    "soft_margin": F.soft_margin_loss,
}
REDUCTIONS = ("none", "mean", "sum")


def gradient(loss: Callable[..., Tensor], x: Tensor, target: Tensor) -> Tensor:
    leaf = x.detach().requires_grad_()
    value = loss(leaf, target)
    (found,) = torch.autograd.grad(value, leaf, torch.full_like(value, 0.7))
    return found


def compiled(loss: Callable[..., Tensor], **options: Any) -> Callable[..., Tensor]:
    torch._dynamo.reset()
    call = lambda x, y: loss(x, y, **options)  # noqa: E731
    return torch.compile(call, backend="dort", options={"fallback": False}, dynamic=False)


@every_pair(name=LOSSES, reduction=REDUCTIONS, dtype=(torch.float32, torch.float64, torch.bfloat16))
def test_a_gradient_is_float64s(name: str, reduction: str, dtype: torch.dtype) -> None:
    x, target = NUMBERS.to(dtype), torch.tensor([1.0, -1.0]).repeat(6).to(dtype)
    exact = gradient(lambda x, y: LOSSES[name](x, y, reduction=reduction), x.double(), target.double())
    found = gradient(compiled(LOSSES[name], reduction=reduction), x, target)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=8 * torch.finfo(dtype).eps, atol=1e-30)


@every_pair(name=("huber", "mse", "smooth_l1"), reduction=REDUCTIONS)
def test_a_gradient_is_nan_where_torchs_is(name: str, reduction: str) -> None:
    x, target = (
        torch.tensor([math.nan, math.inf, -math.inf, math.inf, 1.0]),
        torch.tensor([0.0, math.inf, 0, 0, math.nan]),
    )
    expected = gradient(lambda x, y: LOSSES[name](x, y, reduction=reduction), x, target)
    assert expected.isnan().sum() >= 3
    found = gradient(compiled(LOSSES[name], reduction=reduction), x, target)
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("name", LOSSES)
def test_an_empty_batch_has_an_empty_gradient(name: str) -> None:
    x = torch.zeros(0, 4)
    assert gradient(compiled(LOSSES[name]), x, torch.zeros(0, 4)).shape == (0, 4)
