"""``backend="dort"`` on a GPU: torch's streams, memory, precision and random numbers."""

from __future__ import annotations

import gc
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from dort_compare import compare
from dort_compare.cli import main
from dort_compare.models import LlamaConfig, build

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

LLAMA = LlamaConfig(hidden=128, heads=4, intermediate=192, vocabulary=50, layers=2)


def llama(attention: str = "eager") -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return build("model", replace(LLAMA, attention=attention), seq=32, device="cuda")


def gradients(function: Any, module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    module.zero_grad(set_to_none=True)
    function(*inputs).square().mean().backward()
    return [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]


def assert_near(found: list[torch.Tensor], right: list[torch.Tensor]) -> None:
    for one, other in zip(found, right, strict=True):
        assert one.device == other.device
        assert (one - other).abs().max() <= 1e-4 * other.abs().max()


@pytest.mark.parametrize("side", [False, True])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_trains_as_eager_on_every_stream(attention: str, side: bool) -> None:
    module, inputs = llama(attention)
    compiled, right = torch.compile(module, backend="dort"), gradients(module, module, inputs)
    stream = torch.cuda.Stream() if side else torch.cuda.current_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(5):
            found = gradients(compiled, module, inputs)
    torch.cuda.synchronize()
    assert_near(found, right)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_fused_attention_is_torchs_and_no_fallback(precision: torch.dtype, said_by: Any) -> None:
    module, inputs = llama("sdpa")
    with torch.autocast("cuda", precision):
        right = gradients(module, module, inputs)
        found = gradients(torch.compile(module, backend="dort"), module, inputs)
    for one, other in zip(found, right, strict=True):
        assert (one - other).norm() <= 3e-2 * other.norm()
    assert said_by("dort_compare") == []


def test_a_step_copies_nothing_to_the_cpu() -> None:
    """Neither what no node reads nor indices that only the CPU would check: the device would be waited for."""
    module, inputs = llama("sdpa")
    compiled = torch.compile(module, backend="dort")
    for _ in range(2):
        gradients(compiled, module, inputs)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        gradients(compiled, module, inputs)
        torch.cuda.synchronize()
    assert [event.name for event in seen.events() if "DtoH" in event.name] == []


def test_memory_is_handed_from_step_to_step() -> None:
    """Results that are dropped while kernels that read them still wait may not be written by the next step."""
    module, inputs = llama()
    compiled, right = torch.compile(module, backend="dort"), module(*inputs).double().sum()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        compiled(*inputs)
        totals = [compiled(*inputs).double().sum() for _ in range(200)]
        assert max((total - right).abs().item() for total in totals) <= 1e-3 * right.abs().item() + 1e-3


@pytest.mark.parametrize(("precision", "is_rounded"), [("highest", False), ("high", True)])
def test_products_are_rounded_where_torchs_are(precision: str, is_rounded: bool) -> None:
    before = torch.get_float32_matmul_precision()
    x = torch.randn(256, 256, device="cuda")
    exact = x.double() @ x.double()
    torch.set_float32_matmul_precision(precision)
    try:
        found = torch.compile(lambda x: x @ x, backend="dort")(x)
    finally:
        torch.set_float32_matmul_precision(before)
    error = ((found - exact).norm() / exact.norm()).item()
    assert (error > 1e-5) is is_rounded, error


def test_dropout_draws_what_eager_draws() -> None:
    module = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.3), nn.Linear(64, 8)).cuda()
    x, compiled = torch.randn(32, 16, device="cuda"), torch.compile(module, backend="dort")
    torch.manual_seed(1)
    right = gradients(module, module, (x,))
    torch.manual_seed(1)
    assert_near(gradients(compiled, module, (x,)), right)


def test_what_lies_on_the_cpu_stays_there() -> None:
    def function(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * scale, scale + 1

    x, scale = torch.randn(4, device="cuda"), torch.tensor(3.0)
    product, plus = torch.compile(function, backend="dort")(x, scale)
    assert torch.equal(product, x * 3)
    assert (plus.device.type, plus.item()) == ("cpu", 4)


def test_a_program_may_end_while_it_runs() -> None:
    """ONNX Runtime's own threads would end the process where they are the last to hold a session's memory."""
    x = torch.randn(64, 64, device="cuda")
    for size in range(1, 60):
        compiled = torch.compile(lambda x, size=size: torch.cat([x, x[:size]]).sum(0), backend="dort")
        compiled(x)
        found = compiled(x)
        del compiled
        torch._dynamo.reset()
        gc.collect()
        assert torch.allclose(found, x.sum(0) + x[:size].sum(0), atol=1e-4)


def test_a_model_that_moves_is_compiled_again() -> None:
    module = nn.Linear(4, 3)
    compiled, x = torch.compile(module, backend="dort"), torch.randn(2, 4)
    right = compiled(x).detach()
    module.cuda()
    assert torch.allclose(compiled(x.cuda()).cpu(), right, atol=1e-6)


def test_frozen_parameters_are_noticed_when_they_change() -> None:
    module, inputs = llama()
    compiled = torch.compile(module.eval(), backend="dort", options={"freeze": True})
    with torch.no_grad():
        for _ in range(3):
            assert (compiled(*inputs) - module(*inputs)).abs().max() <= 1e-4
            for parameter in module.parameters():
                parameter.mul_(1.1)


def test_too_little_memory_is_torchs_error() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.unsqueeze(0) * x.unsqueeze(1)).cumsum(0)

    compiled = torch.compile(function, backend="dort")
    with pytest.raises(torch.OutOfMemoryError):
        compiled(torch.ones(400_000, device="cuda"))
    assert torch.equal(compiled(torch.ones(3, device="cuda")), function(torch.ones(3, device="cuda")))


@pytest.mark.parametrize("precision", [None, torch.bfloat16, torch.float16])
def test_a_dump_is_checked_on_either_device(
    tmp_path: Path, precision: torch.dtype | None, capsys: pytest.CaptureFixture[str]
) -> None:
    module, inputs = llama()
    report = compare(module, inputs, backward=True, autocast=precision, provider="cuda", dump=tmp_path / "dump")
    assert report.verdict == "agree", str(report)
    for provider in ("cuda", "cpu"):
        with pytest.raises(SystemExit) as ended:
            main(["check", str(tmp_path / "dump"), "--provider", provider])
        assert ended.value.code == 0, capsys.readouterr().out


def test_what_onnx_runtime_ships_is_compared_too() -> None:
    module, inputs = llama()
    report = compare(module, inputs, backward=True, provider="cuda", optimized=True)
    assert report.verdict == "agree", str(report)


def test_results_lie_in_torchs_memory() -> None:
    compiled, x = torch.compile(lambda x: x * 2 + 1, backend="dort"), torch.randn(1 << 20, device="cuda")
    compiled(x)
    before = torch.cuda.memory_allocated()
    found = compiled(x)
    assert torch.cuda.memory_allocated() - before == found.nbytes
    del found
    assert torch.cuda.memory_allocated() == before


def test_a_provider_with_a_limit_has_memory_of_its_own() -> None:
    providers = [("cuda", {"gpu_mem_limit": str(1 << 30)})]
    compiled = torch.compile(lambda x: x * 2 + 1, backend="dort", options={"providers": providers})
    x = torch.randn(1 << 20, device="cuda")
    before = torch.cuda.memory_allocated()
    found = compiled(x)
    assert torch.cuda.memory_allocated() == before
    assert torch.equal(found, x * 2 + 1)


@pytest.mark.parametrize("options", [{}, {"cudagraphs": True}])
def test_a_process_may_end_with_results_alive(options: dict[str, bool]) -> None:
    program = f"""
import torch
f, x = torch.compile(torch.nn.Linear(8, 8).cuda(), backend="dort", options={options}), torch.ones(2, 8, device="cuda")
for _ in range(4):
    y = f(x)
    y.sum().backward()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
