"""``options={"cudagraphs": True}`` on a GPU: what is launched again computes what eager does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from dort_compare.backends.captured import refusal
from dort_compare.models import LlamaConfig, build

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

LLAMA = LlamaConfig(hidden=128, heads=4, intermediate=192, vocabulary=50, layers=2)
OPTIONS = {"cudagraphs": True}
CALLS = 6


def compiled(function: Callable[..., Any], **given: Any) -> Any:
    return torch.compile(function, backend="dort", options=OPTIONS, **given)


def launches(call: Callable[[], Any]) -> int:
    """How many CUDA graphs a call launches."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    return sum(event.name == "cudaGraphLaunch" for event in seen.events())


def test_inference_reads_the_inputs_of_each_call(said_by: Any) -> None:
    module = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 8)).cuda()
    function = compiled(module)
    with torch.no_grad():
        for _ in range(CALLS):
            x = torch.randn(4, 16, device="cuda")
            assert torch.allclose(function(x), module(x), atol=1e-5)
        module[0].weight.mul_(2)
        assert torch.allclose(function(x), module(x), atol=1e-5)
        assert launches(lambda: function(x)) == 1
    assert said_by("dort_compare") == []


@pytest.mark.parametrize("precision", [None, torch.bfloat16])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_trains_as_eager(attention: str, precision: torch.dtype | None, said_by: Any) -> None:
    module, inputs = build("model", replace(LLAMA, attention=attention), seq=32, device="cuda")
    twin, _ = build("model", replace(LLAMA, attention=attention), seq=32, device="cuda")
    twin.load_state_dict(module.state_dict())
    pairs = [(each, torch.optim.SGD(each.parameters(), 0.1)) for each in (module, twin)]
    functions = (compiled(module), twin)

    def step(function: Any, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cuda", precision) if precision else nullcontext():
            loss = function(*inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach().clone()

    for _ in range(CALLS):
        found, right = (step(function, optimizer) for function, (_, optimizer) in zip(functions, pairs, strict=True))
        assert torch.allclose(found, right, rtol=1e-4 if precision is None else 2e-2)
    for one, other in zip(module.parameters(), twin.parameters(), strict=True):
        assert (one - other).norm() <= (1e-4 if precision is None else 2e-2) * other.norm()
    assert launches(lambda: step(functions[0], pairs[0][1])) == 2
    assert said_by("dort_compare") == []


def test_gradients_add_up() -> None:
    module, x = nn.Linear(8, 3).cuda(), torch.randn(5, 8, device="cuda")
    function, sums = compiled(module), []
    for each in (module, function):
        module.zero_grad()
        for i in range(CALLS):
            each(x * i).square().sum().backward()
        sums.append([parameter.grad.clone() for parameter in module.parameters()])
    for right, found in zip(*sums, strict=True):
        assert torch.allclose(found, right, rtol=1e-4)


def test_dropout_draws_anew_and_its_gradient_knows() -> None:
    function = compiled(nn.Dropout(0.5))
    seen = []
    for _ in range(CALLS):
        x = torch.ones(1000, device="cuda", requires_grad=True)
        y = function(x)
        kept = y.detach().clone() != 0
        y.sum().backward()
        assert torch.equal(x.grad != 0, kept)
        seen.append(kept)
    assert all(not torch.equal(one, other) for one, other in itertools.pairwise(seen))


def test_unequal_parts(said_by: Any) -> None:
    """ONNX Runtime's Concat and Split read their sizes from a buffer of the CPU."""

    def parts(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        head, rest = torch.cat([x, y, x * 2]).exp().split([4, x.shape[0] * 2 + y.shape[0] - 4])
        return torch.cat([rest.sin(), head])

    function = compiled(parts)
    x, y = torch.randn(3, 5, device="cuda"), torch.randn(40, 5, device="cuda")
    for _ in range(CALLS):
        x, y = x + 0.1, y + 0.1
        assert torch.allclose(function(x, y), parts(x, y))
    assert launches(lambda: function(x, y)) == 1
    assert said_by("dort_compare") == []


def test_copies_from_the_cpu_are_seen() -> None:
    given, found = torch.ones(3).pin_memory(), torch.zeros(3, device="cuda")
    device = torch.device("cuda", 0)
    assert "copies between the memories" in (refusal(lambda _: found.copy_(given, non_blocking=True), [], device) or "")
    assert refusal(lambda _: found.add_(1), [], device) is None
    assert found.tolist() == [0, 0, 0], "a trial computes nothing"


@torch.library.custom_op("dort_compare_gpu_tests::waits", mutates_args=())
def waits(x: torch.Tensor) -> torch.Tensor:
    """What asks the device for a number."""
    return x * x.sum().item()


@waits.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_what_waits_for_the_device_is_left_as_it_is_and_harms_nothing(said_by: Any) -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return waits(x).sin()

    function, x = compiled(scaled), torch.ones(4, 2, device="cuda")
    for _ in range(CALLS):
        assert torch.allclose(function(x), scaled(x))
    assert any("no CUDA graph is made of it" in line and "Error" in line for line in said_by("dort_compare"))
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.manual_seed(0)
    drawn = torch.randn(3, device="cuda")
    torch.manual_seed(0)
    assert torch.equal(torch.randn(3, device="cuda"), drawn)
    with torch.no_grad():
        other, x = compiled(nn.Linear(4, 3).cuda()), torch.ones(2, 4, device="cuda")
        for _ in range(3):
            other(x)
        assert launches(lambda: other(x)) == 1


def test_numbers_that_vary_are_not_recorded(said_by: Any) -> None:
    function = compiled(lambda x, n: torch.triu(x, n) * 2)
    x = torch.randn(4, 4, device="cuda")
    for n in (1, 2, 3, 0, 2, -1):
        assert torch.equal(function(x, n), torch.triu(x, n) * 2)
    assert any("dynamic=False" in line for line in said_by("dort_compare"))


def test_conjugates() -> None:
    def conjugated(z: torch.Tensor) -> torch.Tensor:
        return (z * 2).conj().imag

    function = compiled(conjugated)
    for _ in range(CALLS):
        z = torch.randn(3, dtype=torch.complex64, device="cuda").conj()
        assert torch.allclose(function(z), conjugated(z))


def test_sizes_that_vary_are_said_to(said_by: Any) -> None:
    function = compiled(lambda x: x * 2 + 1)
    for size in (3, 4, 5, 5, 5):
        x = torch.randn(size, device="cuda")
        assert torch.equal(function(x), x * 2 + 1)
    assert ["dynamic=False" in line for line in said_by("dort_compare")] == [True]


def test_results_that_share_memory_share_it() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = x + 1
        return y, y[1:], x[0]

    graphed, x = compiled(function), torch.randn(4, 3, device="cuda")
    for _ in range(CALLS):
        y, part, first = graphed(x)
        assert torch.equal(y, x + 1)
        assert part.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
        assert torch.equal(part, y[1:])
        assert torch.equal(first, x[0])


def test_what_the_cpu_computes_is_not_recorded(said_by: Any) -> None:
    function = compiled(lambda x, scale: (x * scale, scale + 1))
    for i in range(CALLS):
        product, plus = function(torch.ones(3, device="cuda"), torch.tensor(float(i)))
        assert (product.tolist(), plus.item()) == ([i] * 3, i + 1)
    assert ["is not on a GPU" in line for line in said_by("dort_compare")] == [True]
