"""What a compiled function returns may be written in place, as what eager returns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

RESULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "stack": lambda x: torch.stack([x, x * 2]),
    "stack of sums": lambda x: torch.stack([x.sum(1), x.mean(1)], 1),
    "rot90": lambda x: torch.rot90(x, 1, (1, 2)),
    "read by another": lambda x: torch.stack([x, x * 2]) + torch.stack([x, x * 2]).sin(),
    "computed": lambda x: x.sin() * 2,
}


def gradient(function: Callable[[Tensor], Tensor], compiler: str, within: torch.no_grad | torch.enable_grad) -> Tensor:
    torch._dynamo.reset()
    x = torch.linspace(-1, 1, 32).view(2, 4, 4).requires_grad_()
    y = torch.compile(function, backend=compiler)(x)
    with within:
        y += 1
    y.square().sum().backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize("within", [torch.enable_grad(), torch.no_grad()], ids=["recorded", "not recorded"])
@pytest.mark.parametrize("compiler", ["dort", "dort_debug"])
@pytest.mark.parametrize("name", RESULTS)
def test_its_gradient_is_eagers(name: str, compiler: str, within: torch.no_grad | torch.enable_grad) -> None:
    expected = gradient(RESULTS[name], "eager", within)
    torch.testing.assert_close(gradient(RESULTS[name], compiler, within), expected)


@pytest.mark.parametrize("compiler", ["dort", "dort_debug"])
def test_two_that_share_memory_in_eager_share_it(compiler: str) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.stack([x, x * 2])
        return y, y.view(-1)

    for gradients in (torch.enable_grad(), torch.no_grad()):
        torch._dynamo.reset()
        with gradients:
            one, other = torch.compile(function, backend=compiler)(torch.ones(3, requires_grad=True))
        with torch.no_grad():
            one.add_(1)
        assert other.tolist() == [2, 2, 2, 3, 3, 3]
