"""What is written under ``no_grad`` to an argument that something has computed leaves its gradient what it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor


def under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.clamp_(max=2)
    return x.view(-1)


def in_inference_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        x.mul_(2)
    return x[1:]


def through_another_tensor(x: Tensor) -> Tensor:
    x.detach().add_(1)
    return x.t()


def and_recorded(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(2)
    x.mul_(3)
    return x.view(-1)


def gradient(function: Callable[[Tensor], Tensor], compiler: str, dynamic: bool) -> Tensor:
    torch._dynamo.reset()
    given = torch.arange(6.0).view(2, 3).requires_grad_()
    x = given * 2
    y = torch.compile(function, backend=compiler, dynamic=dynamic)(x)
    (y.square().sum() + x.sin().sum()).backward()
    assert given.grad is not None
    return given.grad


@pytest.mark.parametrize("dynamic", [False, True], ids=["known sizes", "symbolic sizes"])
@pytest.mark.parametrize("compiler", ["dort", "dort_debug"])
@pytest.mark.parametrize("function", [under_no_grad, in_inference_mode, through_another_tensor, and_recorded])
def test_gradients_are_eagers(function: Callable[[Tensor], Tensor], compiler: str, dynamic: bool) -> None:
    expected = gradient(function, "eager", dynamic)
    torch.testing.assert_close(gradient(function, compiler, dynamic), expected)
