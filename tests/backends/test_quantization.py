"""Models that are trained to be quantized, and converted: what is rounded to steps is eager's, to the last bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.ao import quantization

import dort_compare
from dort_compare import DebugBackend
from dort_compare.lowering.ops import observed_fake_quantize


@pytest.fixture
def _traced_whole() -> Iterator[None]:
    """Dynamo leaves torch.ao to eager torch unless told otherwise."""
    with torch._dynamo.config.patch(dont_skip_tracing=True):
        yield


traced_whole = pytest.mark.usefixtures("_traced_whole")


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn(self.conv(self.quant(x))))
        return self.dequant(self.linear(x.mean((2, 3))))


def prepared() -> nn.Module:
    """With fused observers, weights by channel; after a step, which gives the observers their sizes."""
    torch.manual_seed(0)
    model = quantization.fuse_modules_qat(Network().train(), [["conv", "bn", "relu"]])
    model.qconfig = quantization.get_default_qat_qconfig("x86")
    model = quantization.prepare_qat(model)
    with torch.no_grad():
        model(torch.randn(4, 3, 8, 8))
    return model


def trained(model: nn.Module, run: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Outputs of three steps; observers stop before the last."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    outputs = []
    for step in range(3):
        if step == 2:
            model.apply(quantization.disable_observer)
        output = run(torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step)))
        optimizer.zero_grad()
        output.square().mean().backward()
        optimizer.step()
        outputs.append(output.detach())
    return outputs


@traced_whole
def test_training_steps_are_eagers() -> None:
    """Smallest and largest elements, scales and zero points, too."""
    eager = prepared()
    model = copy.deepcopy(eager)
    backend = DebugBackend(providers=["cpu"], fallback=False)
    for actual, expected in zip(
        trained(model, torch.compile(model, backend=backend)), trained(eager, eager), strict=True
    ):
        torch.testing.assert_close(actual, expected)
    assert len(backend.graphs) == 2
    targets = {node.target for node in backend.graphs[0].graph_module.graph.nodes}
    assert torch.ops.aten._fused_moving_avg_obs_fq_helper_functional.default in targets
    torch.testing.assert_close(model.state_dict(), eager.state_dict())
    of_activations = model.quant.activation_post_process, eager.quant.activation_post_process
    for (name, actual), expected in zip(of_activations[0].named_buffers(), of_activations[1].buffers(), strict=True):
        assert actual.equal(expected), name


@traced_whole
def test_a_comparison_agrees_and_names_a_quantizer_that_rounds_down(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = (torch.randn(4, 3, 8, 8),)
    report = dort_compare.compare(prepared(), inputs, backward=True, fallback=False)
    assert report.verdict == "agree", str(report)
    right = observed_fake_quantize.on_steps
    monkeypatch.setattr(observed_fake_quantize, "on_steps", lambda op, *args: right(RoundingDown(op), *args))
    torch.compiler.reset()
    report = dort_compare.compare(prepared(), inputs, backward=True, fallback=False)
    assert report.verdict == "diverge"
    assert report.first_divergence.target == "aten._fused_moving_avg_obs_fq_helper_functional.default"


class RoundingDown:
    def __init__(self, op: object) -> None:
        self.op = op

    def __getattr__(self, name: str) -> object:
        return getattr(self.op, "Floor" if name == "Round" else name)


@traced_whole
def test_statistics_that_have_no_size_yet_are_refused() -> None:
    """Eager torch resizes them, where torch traces no other size."""
    model = quantization.default_fused_per_channel_wt_fake_quant()
    backend = DebugBackend(providers=["cpu"], fallback=False)
    with pytest.raises(BackendCompilerFailed, match="statistics of no size yet"):
        torch.compile(model, backend=backend)(torch.randn(4, 3))


SCALES, ZERO_POINTS = torch.tensor([0.1, 0.02, 0.3]), torch.tensor([0, 3, -2], dtype=torch.int32)
QUANTIZED: dict[str, Callable[[Tensor], Tensor]] = {
    "numbers": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127),
    "tensors": lambda x: torch.fake_quantize_per_tensor_affine(x, SCALES[0], ZERO_POINTS[0], -128, 127),
    "channels": lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZERO_POINTS, 1, -128, 127),
    "learnt": lambda x: torch._fake_quantize_learnable_per_channel_affine(x, SCALES, SCALES * 9, 1, -128, 127),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", QUANTIZED)
def test_steps_and_the_gradient_that_passes_them_are_eagers(name: str, dtype: torch.dtype) -> None:
    if name == "learnt" and dtype != torch.float32:
        pytest.skip("torch has its gradient in float32")
    backend = DebugBackend(providers=["cpu"], fallback=False)
    x = (torch.randn(40, 3) * 20).to(dtype)
    inputs = x.clone().requires_grad_(), x.clone().requires_grad_()
    results = torch.compile(QUANTIZED[name], backend=backend)(inputs[0]), QUANTIZED[name](inputs[1])
    for result in results:
        result.backward(torch.ones_like(result))
    assert results[0].equal(results[1])
    assert inputs[0].grad.equal(inputs[1].grad)
    assert len(backend.graphs) == 2


def test_one_model_serves_observers_of_every_size() -> None:
    """Of the other quantizers torch traces known sizes alone."""
    backend = DebugBackend(providers=["cpu"], fallback=False)
    on = torch.tensor([1])

    def observed(x: Tensor, state: list[Tensor]) -> Tensor:
        return torch.fused_moving_avg_obs_fake_quant(x, on, on, *state, 0.01, 0, 255, -1)

    compiled = torch.compile(observed, backend=backend, dynamic=True)
    states = [
        [torch.tensor(torch.inf), torch.tensor(-torch.inf), torch.ones(1), torch.zeros(1).int()] for _ in range(2)
    ]
    for rows in (5, 9, 40):
        x = torch.randn(rows, 3) * rows
        assert compiled(x, states[0]).equal(observed(x, states[1]))
        assert all(actual.equal(expected) for actual, expected in zip(*states, strict=True))
    assert len(backend.graphs) == 1


class Converted(nn.Module):
    """As convert_pt2e leaves a layer: its weights quantized, its input quantized and back."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 127, (4, 3), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(4) / 100)

    def forward(self, x: Tensor) -> Tensor:
        ops = torch.ops.quantized_decomposed
        weight = ops.dequantize_per_channel(self.weight, self.scales, None, 0, -128, 127, torch.int8)
        x = ops.quantize_per_tensor(x, 0.02, 128, 0, 255, torch.uint8)
        x = ops.dequantize_per_tensor(x, 0.02, 128, 0, 255, torch.uint8)
        return x @ weight.t()


def test_a_converted_model_runs_whole() -> None:
    report = dort_compare.compare(Converted(), (torch.randn(40, 3),), fallback=False)
    assert report.verdict == "agree", str(report)
    exact = [row for row in report.rows if row.target.startswith("quantized_decomposed")]
    assert [row.local.max_abs for row in exact] == [0, 0, 0]
