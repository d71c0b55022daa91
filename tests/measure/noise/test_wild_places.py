"""What roundings move in one place is no measure for the rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from of_function import Of
from planted_noise import fused, plant
from torch import Tensor
from torch.nn import functional as F

import dort_compare
from dort_compare.lowering import registered, registry

aten = torch.ops.aten
LOW = torch.finfo(torch.float32).min


PADDED = torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]]).bool()[:, None, :] & torch.ones(6, 6, dtype=torch.bool).tril()


def hidden(low: float) -> Tensor:
    """The mask of two sequences, of which the second begins with padding: its first rows are hidden whole."""
    return torch.zeros(2, 6, 6).masked_fill(~PADDED, low)


def of_mask(x: Tensor, mask: Tensor) -> Tensor:
    return ((x @ x.mT) / 4 + mask).softmax(-1) @ x


def of_choices(x: Tensor, mask: Tensor) -> Tensor:
    return (x + mask).log_softmax(-1)[..., :2]


def one_constant(dim: int) -> Tensor:
    x = torch.randn(6, 16)
    x.select(dim, 2).fill_(1000.1)
    return x


def distances_of(x: Tensor) -> Tensor:
    y = x.sin()
    return torch.cdist(y, y, p=1.0)


ATTENTION, PROBABILITIES = aten._scaled_dot_product_flash_attention_for_cpu.default, aten._softmax.default


ONE_PLACE: dict[str, tuple[Any, Callable[..., Tensor], Callable[[], tuple[Tensor, ...]]]] = {
    "a row hidden by the lowest number": (PROBABILITIES, of_mask, lambda: (torch.randn(2, 6, 16), hidden(LOW))),
    "a row hidden by -1e9": (PROBABILITIES, of_mask, lambda: (torch.randn(2, 6, 16), hidden(-1e9))),
    "a row hidden in fused attention": (ATTENTION, fused, lambda: (torch.randn(2, 6, 16), hidden(LOW))),
    "choices hidden by -1e9": (
        aten._log_softmax.default, of_choices, lambda: (torch.randn(4, 8), torch.tensor([0.0] * 5 + [-1e9] * 3)),
    ),
    "a constant row": (aten.native_layer_norm.default, lambda x: F.layer_norm(x, (16,)), lambda: (one_constant(0),)),
    "a constant channel": (
        aten._native_batch_norm_legit.no_stats, lambda x: F.batch_norm(x, None, None, training=True),
        lambda: (one_constant(1),),
    ),
    "pixels between others": (
        aten.grid_sampler_2d.default, lambda x, at: F.grid_sample(x, at, align_corners=False),
        lambda: (torch.randn(1, 3, 6, 6), torch.randn(1, 4, 4, 2)),
    ),
    "points that coincide": (aten._cdist_backward.default, distances_of, lambda: (torch.randn(4, 8).requires_grad_(),)),
    "an op without a definition for it": (
        aten.adaptive_max_pool2d.default, lambda x: F.adaptive_max_pool2d(x, (3, 5)),
        lambda: (torch.randn(1, 3, 8, 8),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ONE_PLACE)
def test_one_place_is_no_measure_for_the_rest(case, monkeypatch):
    target, function, inputs = ONE_PLACE[case]
    torch.manual_seed(0)
    given = inputs()
    backward = given[0].requires_grad
    assert dort_compare.compare(Of(function), given, backward=backward).verdict == "agree"
    original = registered()[target]

    def wrong(op: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(op, *args, **kwargs)
        first, *others = found if isinstance(found, tuple) else (found,)
        moved = op.Add(first, op.const(0.01, torch.float32))
        return (moved, *others) if others else moved

    monkeypatch.setitem(registry._TABLE, target, wrong)
    report = dort_compare.compare(Of(function), given, backward=backward)
    assert {cause.target for cause in report.causes} == {str(target)}, str(report)


GRADIENTS_OF_DISTANCES: dict[str, Callable[[Tensor], Tensor]] = {
    "cdist": lambda x: torch.cdist(x, x[1:] * 2, p=math.inf),
    "pdist": lambda x: F.pdist(x, p=math.inf),
}


@pytest.mark.parametrize("name", GRADIENTS_OF_DISTANCES)
def test_a_gradient_by_the_largest_difference_is_known_in_float64(name, monkeypatch):
    """Of the distances that float32 has rounded, no difference in float64 is the largest."""
    torch.manual_seed(0)
    target = getattr(aten, f"_{name}_backward").default
    model, inputs = Of(GRADIENTS_OF_DISTANCES[name]), (torch.randn(6, 3).requires_grad_(),)
    original = registered()[target]
    assert dort_compare.compare(model, inputs, backward=True).verdict == "agree"
    monkeypatch.setitem(registry._TABLE, target, lambda op, *args, **kwargs: op.Neg(original(op, *args, **kwargs)))
    report = dort_compare.compare(model, inputs, backward=True)
    assert {cause.target for cause in report.causes} == {str(target)}, str(report)


@pytest.mark.parametrize("align_corners", [True, False])
def test_reflected_pixels_do_not_hide_a_fault(align_corners, monkeypatch):
    """Pixels are whole numbers, which half a pixel outside of the image, where they are reflected, makes halves of: a
    rounding of one of these would choose another pixel."""
    torch.manual_seed(0)

    def sampled(x: Tensor, at: Tensor) -> Tensor:
        return F.grid_sample(x, at, mode="bicubic", padding_mode="reflection", align_corners=align_corners)

    operands = torch.randn(2, 3, 6, 6), torch.randn(2, 5, 5, 2)
    assert dort_compare.compare(Of(sampled), operands).verdict == "agree"
    plant(monkeypatch, aten.grid_sampler_2d.default, 1.01)
    assert [cause.target for cause in dort_compare.compare(Of(sampled), operands).causes] == [
        "aten.grid_sampler_2d.default"
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_of_equal_keys_that_are_all_hidden_is_noise(seed, monkeypatch):
    """A rounding of the lowest number would let one of them through."""
    torch.manual_seed(seed)
    k = torch.randn(1, 1, 1, 8).expand(1, 1, 12, 8)
    operands = [torch.randn(1, 1, 7, 8).requires_grad_(), *(k.clone().requires_grad_() for _ in range(2))]
    mask = torch.full((7, 12), LOW)
    model = Of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    assert dort_compare.compare(model, operands, backward=True).verdict == "agree"
    target = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    original = registered()[target]

    def wrong(op: Any, *args: Any, **kwargs: Any) -> Any:
        by_query, by_key, by_value = original(op, *args, **kwargs)
        return by_query, op.Add(by_key, op.const(1e-4, torch.float32)), by_value

    monkeypatch.setitem(registry._TABLE, target, wrong)
    assert [cause.target for cause in dort_compare.compare(model, operands, backward=True).causes] == [str(target)]


@pytest.mark.parametrize("seed", [8, 21])
def test_torch_does_not_depart_where_onnx_has_the_same(seed):
    """1 + 1e-7 is rounded: torch's kernel and ours take the pixel in the middle, float64 one beside it."""
    torch.manual_seed(seed)
    operands = torch.randn(1, 2, 5, 5, 5).requires_grad_(), (torch.randn(1, 3, 3, 3, 3) * 1e-7).requires_grad_()
    sampled = Of(lambda x, at: F.grid_sample(x, at, align_corners=True))
    assert dort_compare.compare(sampled, operands, backward=True).verdict == "agree"
