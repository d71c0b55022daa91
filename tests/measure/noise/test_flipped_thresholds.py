"""Thresholds that a rounding reaches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from of_function import Of
from planted_noise import plant
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import dort_compare
from dort_compare.lowering import registered, registry
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.local import local_error
from dort_compare.trace import Replay

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("seed", range(3))
def test_a_threshold_that_rounding_flips_is_no_divergence(dtype, seed):
    torch.manual_seed(seed)
    module = Of(lambda x, a: torch.where((h := a(x)) > 0.5, h, 0.0), a=nn.Linear(64, 64))
    report = dort_compare.compare(module, (torch.randn(128, 64),), autocast=dtype)
    assert not [row for row in report.rows if row.status == "diverges"]


def test_a_threshold_that_only_a_few_roundings_reach_is_no_divergence(monkeypatch):
    """ONNX's products are right within noise, and yet its mask is another than torch's."""
    plant(monkeypatch, aten.mm.default, 1 + 1.2e-6)
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.rand(1, 64, generator=generator), nn.Parameter(torch.rand(64, 4, generator=generator))
    bound = (x.double() @ weight.detach().double()).float() * torch.tensor([0.5, 0.5, 1 + 8e-7, 1.5])
    report = dort_compare.compare(Of(lambda x, w: torch.relu(x @ w - bound)), (x, weight), backward=True)
    assert report.verdict == "agree", str(report)
    (gradient,) = (row for row in report.outputs if row.kind == "gradient" and row.name.endswith("1]"))
    assert gradient.distance.max_abs > 0.1


AT_THRESHOLDS: dict[str, tuple[Any, Callable[[Tensor], Tensor]]] = {
    "floor_divide": (aten.floor_divide.default, lambda x: x // 2),
    "fake_quantize": (
        aten.fake_quantize_per_tensor_affine_cachemask.default,
        lambda x: torch.fake_quantize_per_tensor_affine(x, 2.0, 0, -128, 127),
    ),
    "histc": (aten.histc.default, lambda x: torch.histc(x, 4, 0, 16)),
    "mode": (aten.mode.default, lambda x: x.mode()[0]),
}


@pytest.mark.parametrize("name", AT_THRESHOLDS)
def test_numbers_at_a_threshold_do_not_hide_a_fault(name, monkeypatch):
    """A rounding takes 8 // 2 to 3, and moves nothing of 7 // 2: torch's kernel and ours read the same 8."""
    target, function = AT_THRESHOLDS[name]
    x = torch.tensor([7.0, 5.0, 5.0, 8.0, 9.5, 13.0])
    assert dort_compare.compare(Of(function), (x,)).verdict == "agree"
    original = registered()[target]

    def wrong(op: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(op, *args, **kwargs)
        first, *others = found if isinstance(found, Sequence) else (found,)
        return (op.Mul(first, 0.9), *others) if others else op.Mul(first, 0.9)

    monkeypatch.setitem(registry._TABLE, target, wrong)
    assert [cause.target for cause in dort_compare.compare(Of(function), (x,)).causes] == [str(target)]


WHOLE = torch.tensor([[5.0, 3.0, 4.0, 7.0], [1.0, 1.0, 1.0, 7.0]])


ALONE: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], float]] = {
    "floor_divide": (lambda x: x // 2, (torch.tensor([8.0]),), 3.0),
    "fake_quantize": (
        lambda x: torch.fake_quantize_per_tensor_affine(x, 2.0, 0, -128, 127), (torch.tensor([5.0]),), 6.0,
    ),
    "mode": (lambda x: x.mode().values, (torch.tensor([[5.0, 5.0, 3.0, 4.0, 7.0, 7.0]]),), 7.0),
    "hardtanh_backward": (lambda g, x: aten.hardtanh_backward(g, x, -1, 1), (WHOLE, torch.ones(2, 4)), 1.0),
    "hardshrink_backward": (lambda g, x: aten.hardshrink_backward(g, x, 1.0), (WHOLE, torch.ones(2, 4)), 1.0),
    "cdist": (lambda x, y: torch.cdist(x, y, p=0.0), (WHOLE, WHOLE.flip(0)), 7.0),
}  # fmt: skip
"""Functions of numbers of which all lie at a threshold, and what stands in the place of their results."""


@pytest.mark.parametrize("name", ALONE)
def test_numbers_at_a_threshold_do_not_hide_a_fault_of_their_own(name):
    function, operands, wrong = ALONE[name]
    graph = make_fx(function)(*operands)
    *placeholders, output = (node for node in graph.graph.nodes if node.op in ("placeholder", "output"))
    replay = Replay({node.name: value for node, value in zip(placeholders, operands, strict=True)})
    right = graph(*operands)
    value = torch.full_like(right, wrong)
    found = local_error(replay, output.args[0], right, value, distance(right, value))
    assert not found.is_noise
    assert not found.torch_departs


@pytest.mark.parametrize("steps", [17, 33])
def test_a_matrix_that_many_roundings_make_singular_hides_no_fault(steps):
    """Eight roundings at once lead next to a singular matrix, to solutions out of all proportion."""
    a, b = torch.tensor([[1.0, 1.0], [1.0, 1.0 + steps * 2.0**-23]]), torch.tensor([1.0, 2.0])
    graph = make_fx(lambda a, b: aten._linalg_solve_ex(a, b)[0])(a, b)
    (output,) = graph.graph.find_nodes(op="output")
    right = graph(a, b)
    found = local_error(Replay({"a_1": a, "b_1": b}), output.args[0], right, 6 * right, distance(right, 6 * right))
    assert not found.is_noise


def test_whole_numbers_that_float32_does_not_hold_are_rounded():
    """A product of some 1e9, all but cancelled by a third: its roundings are what is left."""
    torch.manual_seed(0)
    a, b = (torch.randint(10000, 90000, (64,)).float() for _ in range(2))
    report = dort_compare.compare(Of(lambda a, b: torch.addcmul(-(a * b), a, b) + 1e8), (a, b))
    assert report.verdict == "agree", str(report)
