"""Gradients by what is rounded to steps, their scale and their zero point: element by element those of torch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from op_calls import Call, outputs_of
from torch import Tensor

from dort_compare.runtime import newest_opset
from dort_compare.runtime.opsets import OLDEST_OPSET

aten = torch.ops.aten
PER_TENSOR = aten._fake_quantize_learnable_per_tensor_affine_backward.default
PER_CHANNEL = aten._fake_quantize_learnable_per_channel_affine_backward.default
RANGES = ((0, 255), (-128, 127), (-8, 7))
FACTOR = 0.7
opsets = pytest.mark.parametrize("opset", [OLDEST_OPSET, newest_opset()])
ranges = pytest.mark.parametrize(("quant_min", "quant_max"), RANGES)


def gradients(target: Any, args: tuple[Any, ...], opset: int) -> list[tuple[Tensor, Tensor]]:
    """What ONNX Runtime and torch compute."""
    call = Call(target, args, {})
    pairs = list(zip(call.on_onnx_runtime(opset), outputs_of(call()), strict=True))
    for actual, expected in pairs:
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    return pairs


def beside_ties(scale: float, zero_point: float) -> Tensor:
    """Halfway between steps or a rounding beside it, within the range and without."""
    halves = (torch.arange(-300.0, 300) + 0.5 - zero_point) * scale
    beside = [torch.nextafter(halves, torch.tensor(to)) for to in (torch.inf, -torch.inf)]
    return torch.cat([halves, *beside, torch.randn(100) * 50 * scale, torch.tensor([torch.inf, -torch.inf, torch.nan])])


@opsets
@ranges
def test_one_element_a_channel(quant_min: int, quant_max: int, opset: int) -> None:
    """So that no sum is rounded."""
    for scale, zero_point in itertools.product((0.1, 0.0123, 7.3e-5), (0.0, 2.5, 3.5, 127.4)):
        x = beside_ties(scale, min(zero_point, quant_max)).unsqueeze(1)
        scales, zero_points = torch.full((len(x),), scale), torch.full((len(x),), zero_point)
        args = torch.randn(x.shape), x, scales, zero_points, 0, quant_min, quant_max, FACTOR
        for actual, expected in gradients(PER_CHANNEL, args, opset):
            torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@opsets
@ranges
def test_one_element_of_a_tensor(quant_min: int, quant_max: int, opset: int) -> None:
    for zero_point in (0.0, 2.5, 3.5, 300.0):
        for x in beside_ties(0.0123, min(zero_point, quant_max))[::200]:
            args = torch.randn(1), x.reshape(1), torch.tensor([0.0123]), torch.tensor([zero_point])
            for actual, expected in gradients(PER_TENSOR, (*args, quant_min, quant_max, FACTOR), opset):
                torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


SHAPES = {"a matrix": ((40, 30), 0), "columns": ((40, 30), 1), "an image": ((2, 5, 6, 6), 1), "a vector": ((9,), 0)}


@opsets
@pytest.mark.parametrize("shape", SHAPES)
def test_sums(shape: str, opset: int) -> None:
    size, axis = SHAPES[shape]
    x, grad = torch.randn(size), torch.randn(size)
    count = size[axis]
    per_tensor = (grad, x, torch.tensor([0.02]), torch.tensor([3.0]), 0, 127, FACTOR)
    per_channel = (grad, x, torch.rand(count) / 50, torch.rand(count) * 9, axis, 0, 127, FACTOR)
    for target, args in ((PER_TENSOR, per_tensor), (PER_CHANNEL, per_channel)):
        (of_x, expected), *sums = gradients(target, args, opset)
        assert of_x.equal(expected)
        for actual, expected in sums:
            torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@opsets
def test_bfloat16_and_no_elements(opset: int) -> None:
    x, grad = torch.randn(4, 1).bfloat16(), torch.randn(4, 1).bfloat16()
    learnt = torch.rand(4).bfloat16() / 50, torch.rand(4).bfloat16()
    for actual, expected in gradients(PER_CHANNEL, (grad, x, *learnt, 0, 0, 127, FACTOR), opset):
        assert actual.equal(expected)
    empty, learnt = torch.zeros(4, 0), (torch.rand(4), torch.rand(4))
    for target, args in ((PER_CHANNEL, (*learnt, 0)), (PER_TENSOR, (learnt[0][:1], learnt[1][:1]))):
        for actual, expected in gradients(target, (empty, empty, *args, 0, 127, FACTOR), opset):
            assert actual.equal(expected)
