"""Gradients by what is rounded to steps, and by the scale and the zero point of these (LSQ+; Bhalgat et al., 2020)."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.fake_quantize import along, first, fused, reciprocal, within
from dort_compare.lowering.ops.operands import Number
from dort_compare.lowering.ops.reduction import reduce
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import is_empty, shape_of

aten = torch.ops.aten
Gradients = tuple[ir.Value, ir.Value, ir.Value]
"""By x, scale and zero point."""


@lowering(aten._fake_quantize_learnable_per_tensor_affine_backward.default)
def fake_quantize_learnable_per_tensor_backward(
    op: Builder,
    grad: ir.Value,
    x: ir.Value,
    scale: ir.Value,
    zero_point: ir.Value,
    quant_min: int,
    quant_max: int,
    grad_factor: Number = 1,
) -> Gradients:
    """_fake_quantize_learnable_per_tensor_affine_backward(Tensor grad, Tensor self, Tensor scale, ...)
    -> (Tensor, Tensor, Tensor)

    Halves of a zero point go up here, to even in the forward pass.
    """
    if is_empty(x):
        return x, scale, zero_point
    nearest = op.cast(within(op, op.Add(first(op, zero_point), 0.5), quant_min, quant_max), torch.int64)
    gradients = _gradients(
        op, grad, x, first(op, scale), op.cast(nearest, torch.float32), quant_min, quant_max, grad_factor
    )
    rank = len(shape_of(x))
    sums = (op.Reshape(reduce(op, "ReduceSum", each, None, False, rank), [1]) for each in gradients[1:])
    return _as_torch(op, gradients[0], *sums)


@lowering(aten._fake_quantize_learnable_per_channel_affine_backward.default)
def fake_quantize_learnable_per_channel_backward(
    op: Builder,
    grad: ir.Value,
    x: ir.Value,
    scale: ir.Value,
    zero_point: ir.Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: Number = 1,
) -> Gradients:
    """_fake_quantize_learnable_per_channel_affine_backward(Tensor grad, Tensor self, Tensor scale, ...)
    -> (Tensor, Tensor, Tensor)

    Of one dimension torch adds up all of it.
    """
    if is_empty(x):
        return x, scale, zero_point
    rank = len(shape_of(x))
    zero_point = within(op, op.Round(op.cast(zero_point, torch.float32)), quant_min, quant_max)
    scale, zero_point = along(op, op.cast(scale, torch.float32), axis, rank), along(op, zero_point, axis, rank)
    gradients = _gradients(op, grad, x, scale, zero_point, quant_min, quant_max, grad_factor)
    others = [d for d in range(rank) if d != axis]
    sums = (reduce(op, "ReduceSum", each, others, False, rank) for each in gradients[1:])
    return _as_torch(op, gradients[0], *sums)


def _gradients(
    op: Builder,
    grad: ir.Value,
    x: ir.Value,
    scale: ir.Value,
    zero_point: ir.Value,
    quant_min: int,
    quant_max: int,
    grad_factor: Number,
) -> Gradients:
    """For each element of x; beyond the range its step does not move with x."""
    grad, x = op.cast(grad, torch.float32), op.cast(x, torch.float32)
    inverse = reciprocal(op, scale)
    whole = op.cast(op.Round(op.cast(fused(op, x, inverse, zero_point), torch.float32)), torch.int64)
    is_below, is_above = op.Less(whole, quant_min), op.Greater(whole, quant_max)
    is_outside = op.Or(is_below, is_above)
    steps = op.Sub(op.cast(within(op, whole, quant_min, quant_max), torch.float32), zero_point)
    error = op.cast(fused(op, steps, scale, op.Neg(x)), torch.float32)
    of_x = op.Mul(grad, op.cast(op.Not(is_outside), torch.float32))
    of_scale = op.Where(is_outside, op.Mul(grad, steps), op.Mul(op.Mul(grad, error), inverse))
    of_zero_point = op.Where(is_outside, op.Mul(op.Neg(grad), scale), 0.0)
    return of_x, op.Mul(of_scale, grad_factor), op.Mul(of_zero_point, grad_factor)


def _as_torch(op: Builder, *gradients: ir.Value) -> Gradients:
    of_x, of_scale, of_zero_point = (op.cast(g, fake.dtype) for g, fake in zip(gradients, op.result, strict=True))
    return of_x, of_scale, of_zero_point
