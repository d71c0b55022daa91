"""What is rewritten while forward and backward are one graph: where it is, where not, and that gradients stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dort_compare import DebugBackend, compare

Function = Callable[[Tensor, Tensor, Tensor], Tensor]
GRADIENT = torch.ops.aten._softmax_backward_data.default


def handed_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT / 2, -1) @ v


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return handed_out(q, k, v).sin()


def of_one_head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (torch.softmax(torch.bmm(q[0], k[0].mT), 2) @ v[0]).sin()


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    hidden = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
    return torch.softmax((q @ k.mT).masked_fill(hidden, -torch.inf), -1) @ v + 1


def of_the_same_values(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (torch.softmax(q @ k.mT, -1) @ v).sin() + torch.softmax(k @ q.mT, -1) @ v


def of_groups(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return 2 * (torch.softmax(q @ k[:, :1].mT, -1) @ v[:, :1])


def thinned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (torch.softmax(q @ k.mT, -1) * (q @ k.mT > 0)) @ v


def twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(q @ k.mT, -1)
    return weights @ v + weights @ q


def returned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(q @ k.mT, -1)
    return (weights @ v).sum() + weights.square().sum()


def of_columns(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT, -2) @ v


def transposed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT, -1).mT @ v


def from_the_left(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return v.mT @ torch.softmax(q @ k.mT, -1)


def raised(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT, -1, dtype=torch.float64).to(q.dtype) @ v


def operands(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 6, 6, generator=draw, dtype=torch.float64).to(dtype) for _ in range(3))
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def gradients(function: Function, dtype: torch.dtype) -> tuple[Tensor, ...]:
    inputs = operands(dtype)
    return torch.autograd.grad(function(*inputs).square().sum(), inputs)


def softmax_gradients(backend: DebugBackend) -> int:
    backward = backend.graphs[-1].graph_module.graph
    return len(backward.find_nodes(op="call_function", target=GRADIENT))


def assert_near(found: tuple[Tensor, ...], exact: tuple[Tensor, ...]) -> None:
    for got, right in zip(found, exact, strict=True):
        torch.testing.assert_close(got.double(), right, rtol=0, atol=1e-6 * right.abs().max().item())


@pytest.mark.parametrize("dynamic", [False, None])
@pytest.mark.parametrize("function", [attention, of_one_head, masked, of_the_same_values, of_groups])
def test_row_sums_are_those_of_outputs(function: Function, dynamic: bool | None) -> None:
    backend = DebugBackend(rewrites=True)
    found = gradients(torch.compile(function, backend=backend, dynamic=dynamic), torch.float32)
    assert softmax_gradients(backend) == 0
    assert_near(found, gradients(function, torch.float64))


@pytest.mark.parametrize(
    "function", [handed_out, thinned, twice, returned, of_columns, transposed, from_the_left, raised]
)
def test_other_gradients_stay_what_they_are(function: Function) -> None:
    backend = DebugBackend(rewrites=True)
    found = gradients(torch.compile(function, backend=backend), torch.float32)
    assert softmax_gradients(backend) == 1
    assert_near(found, gradients(function, torch.float64))


@pytest.mark.parametrize("show", [lambda y: y, lambda y: y.mT, lambda y: y[:, 0]], ids=["whole", "transposed", "part"])
def test_what_is_handed_out_may_be_written(show: Callable[[Tensor], Tensor]) -> None:
    found = []
    for compiler in ("eager", "dort"):
        torch._dynamo.reset()
        inputs = operands()
        y = torch.compile(lambda q, k, v: show(handed_out(q, k, v)), backend=compiler)(*inputs)
        y += 1
        found.append(torch.autograd.grad(y.square().sum(), inputs))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_keeps_the_kernel_that_rounds_once(dtype: torch.dtype) -> None:
    backend = DebugBackend(rewrites=True)
    gradients(torch.compile(attention, backend=backend), dtype)
    assert softmax_gradients(backend) == 1


def test_sizes_that_are_not_known_and_backends_without_rewrites_keep_it() -> None:
    for backend, dynamic in ((DebugBackend(rewrites=True), True), (DebugBackend(), False)):
        torch._dynamo.reset()
        gradients(torch.compile(attention, backend=backend, dynamic=dynamic), torch.float32)
        assert softmax_gradients(backend) == 1


class Attention(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v)


def test_the_verdict_on_it_is_clean() -> None:
    report = compare(Attention(), operands(), backward=True, optimized=True, rewrites=True)
    assert report.verdict == "agree", report.causes
