"""Rounding to the steps of a quantized dtype and back, with the mask by which gradients pass.

As torch's ``QuantizedOpKernels.cpp``: x times the reciprocal of the scale, halves to even.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.comparison import larger, smaller
from dort_compare.lowering.ops.operands import only
from dort_compare.lowering.precision import raise_half
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of, shape_of

aten = torch.ops.aten
Quantized = tuple[ir.Value, ir.Value]
"""What stands on the steps, and where it was within their range."""

_EXACT = 2**24
"""Up to here float32 holds every integer."""


@lowering(aten.fake_quantize_per_tensor_affine_cachemask.default)
def fake_quantize_per_tensor(
    op: Builder, x: ir.Value, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> Quantized:
    """fake_quantize_per_tensor_affine_cachemask(Tensor self, float scale, int zero_point, int quant_min, ...)
    -> (Tensor output, Tensor mask)
    """
    return on_steps(op, x, op.const(scale, torch.float32), op.const(zero_point), quant_min, quant_max)


@lowering(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def fake_quantize_by_tensors(
    op: Builder,
    x: ir.Value,
    scale: ir.Value,
    zero_point: ir.Value,
    enabled: ir.Value,
    quant_min: int,
    quant_max: int,
) -> Quantized:
    """_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(Tensor self, Tensor scale, Tensor zero_point, ...)
    -> (Tensor output, Tensor mask)
    """
    scale, zero_point = only(op, scale, torch.float32), only(op, zero_point, torch.int32)
    return where(op, is_set(op, enabled), on_steps(op, x, scale, zero_point, quant_min, quant_max), x)


def on_steps(
    op: Builder, x: ir.Value, scale: ir.Value, zero_point: ir.Value, quant_min: int, quant_max: int
) -> Quantized:
    """By a scale in float32 and an integer, both of no dimension. NaN becomes the smallest step."""
    wide = raise_half(op, x)
    dtype = dtype_of(wide)
    whole = op.Add(op.Round(op.Mul(wide, op.cast(reciprocal(op, scale), dtype))), op.cast(zero_point, dtype))
    is_inside = _between(op, whole, quant_min, quant_max)
    steps = torch.float64 if max(-quant_min, quant_max) > _EXACT else dtype
    below = op.Min(op.cast(whole, steps), quant_max)
    clamped = op.Where(op.GreaterOrEqual(below, quant_min), below, quant_min)
    difference = op.cast(op.Sub(clamped, op.cast(zero_point, steps)), torch.float32)
    return op.cast(op.Mul(difference, scale), dtype_of(x)), is_inside


def is_set(op: Builder, flag: ir.Value) -> ir.Value:
    """Whether a flag, cut to an integer, is another than 0."""
    return op.cast(only(op, flag, torch.int32), torch.bool)


def where(op: Builder, is_on: ir.Value, quantized: Quantized, x: ir.Value) -> Quantized:
    """``quantized``; or x as it is, all of it within the range."""
    return op.Where(is_on, quantized[0], x), op.Or(op.Not(is_on), quantized[1])


@lowering(aten.fake_quantize_per_channel_affine_cachemask.default)
def on_steps_of_channels(
    op: Builder, x: ir.Value, scale: ir.Value, zero_point: ir.Value, axis: int, quant_min: int, quant_max: int
) -> Quantized:
    """fake_quantize_per_channel_affine_cachemask(Tensor self, Tensor scale, Tensor zero_point, int axis, ...)
    -> (Tensor output, Tensor mask)

    What no integer holds, as infinity, is the smallest of them to torch's kernel, and below the range.
    """
    wide, rank = raise_half(op, x), len(shape_of(x))
    scale, zero_point = along(op, op.cast(scale, torch.float32), axis, rank), along(op, zero_point, axis, rank)
    whole = op.cast(_nearest(op, wide, op.cast(reciprocal(op, scale), dtype_of(wide)), zero_point), torch.int64)
    clamped = op.cast(within(op, whole, quant_min, quant_max), torch.float64)
    difference = op.Sub(clamped, op.cast(zero_point, torch.float64))
    output = op.cast(op.Mul(difference, op.cast(scale, torch.float64)), dtype_of(wide))
    return op.cast(output, dtype_of(x)), _between(op, whole, quant_min, quant_max)


def _nearest(op: Builder, x: ir.Value, inverse: ir.Value, zero_point: ir.Value) -> ir.Value:
    """x * inverse + zero_point as a whole number; a zero point that is a float is added before that is rounded."""
    if not dtype_of(zero_point).is_floating_point:
        return op.Add(op.Round(op.Mul(x, inverse)), op.cast(zero_point, dtype_of(x)))
    if dtype_of(zero_point) == torch.float32:
        added = fused(op, x, inverse, zero_point)
    else:
        added = op.Add(op.Mul(x, inverse), op.cast(zero_point, dtype_of(x)))
    return op.Round(op.cast(added, torch.float32))


def _between(op: Builder, whole: ir.Value, quant_min: int, quant_max: int) -> ir.Value:
    return op.And(op.GreaterOrEqual(whole, quant_min), op.LessOrEqual(whole, quant_max))


def fused(op: Builder, x: ir.Value, factor: ir.Value, term: ir.Value) -> ir.Value:
    """x * factor + term in float64, to be rounded once, as processors do with float32."""
    x, factor, term = (op.cast(value, torch.float64) for value in (x, factor, term))
    return op.Add(op.Mul(x, factor), term)


def reciprocal(op: Builder, scale: ir.Value) -> ir.Value:
    """1 / scale; a product with ``Div(1, scale)`` ONNX Runtime makes a quotient, which is rounded otherwise."""
    return op.Neg(op.Div(-1, scale))


def along(op: Builder, values: ir.Value, axis: int, rank: int) -> ir.Value:
    """A vector whose elements stand along ``axis`` of ``rank`` dimensions."""
    return op.Reshape(values, [-1 if d == axis else 1 for d in range(rank)])


def within(op: Builder, x: ir.Value, quant_min: int, quant_max: int) -> ir.Value:
    """The nearest to x in the range."""
    return smaller(op, larger(op, x, quant_min), quant_max)


def first(op: Builder, values: ir.Value) -> ir.Value:
    """The first element in float32, with no dimension."""
    return op.cast(op.Gather(values, op.const(0), axis=0), torch.float32)
