"""What autograd adds to one gradient is not added to another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dort_compare import DebugBackend

aten = torch.ops.aten
SCALE = torch.arange(8.0).view(4, 2)
Function = Callable[[Tensor, Tensor], Tensor]
OF_ONE_TENSOR: dict[str, tuple[Function, tuple[int, ...], tuple[int, ...]]] = {
    "the very same": (lambda a, b: (a + b) * SCALE, (4, 2), (4, 2)),
    "one view": (lambda a, b: (a.view(4, 2) + b) * SCALE, (8,), (4, 2)),
    "two views": (lambda a, b: (a.view(4, 2) + b.view(4, 2)) * SCALE, (8,), (2, 4)),
    "transposed": (lambda a, b: (a.t() + b.t()) * SCALE, (2, 4), (2, 4)),
    "of what comes in": (lambda a, b: a.view(4, 2) + b, (8,), (4, 2)),
    "of a part": (lambda a, b: (torch.cat([a, b]) + b.repeat(2)) * SCALE.view(8), (4,), (4,)),
    "of a part and the whole": (lambda a, b: (torch.cat([b, b + 1]) + a) * SCALE.view(8), (8,), (4,)),
    "between each other": (lambda a, b: torch.stack([a, b], 1) * SCALE, (4,), (4,)),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("compiler", ["dort", "dort_debug"])
@pytest.mark.parametrize("name", OF_ONE_TENSOR)
def test_each_gradient_adds_up_by_itself(name: str, compiler: str, dynamic: bool) -> None:
    function, *shapes = OF_ONE_TENSOR[name]
    a, b = (torch.randn(shape, requires_grad=True) for shape in shapes)
    once = torch.autograd.grad(function(a, b).sin().sum(), [a, b])
    compiled = torch.compile(function, backend=compiler, dynamic=dynamic)
    for _ in range(3):
        compiled(a, b).sin().sum().backward()
    for tensor, gradient in zip((a, b), once, strict=True):
        torch.testing.assert_close(tensor.grad, 3 * gradient)


def copies(function: Function, *shapes: tuple[int, ...]) -> int:
    """How many copies the backward graph of a function makes."""
    backend = DebugBackend()
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    torch.compile(function, backend=backend)(*inputs).sum().backward()
    (graph,) = (each.graph_module.graph for each in backend.graphs if each.phase == "backward")
    return len(graph.find_nodes(op="call_function", target=aten.clone.default))


def test_what_shares_nothing_is_not_copied() -> None:
    assert copies(lambda a, b: torch.cat([a, b]) * SCALE, (2, 2), (2, 2)) == 0
    assert copies(lambda a, b: (a + b) * SCALE, (4, 2), (4, 2)) == 0
    assert copies(lambda a, b: a.view(4, 2) * b, (8,), (4, 2)) == 0


def test_one_of_two_that_share_is_copied() -> None:
    assert copies(lambda a, b: (a.view(4, 2) + b) * SCALE, (8,), (4, 2)) == 1
