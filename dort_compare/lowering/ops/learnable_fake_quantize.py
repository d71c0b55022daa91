"""Rounding to the steps of a quantized dtype whose scale and zero point are learnt (LSQ+; Bhalgat et al., 2020)."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.fake_quantize import first, on_steps, on_steps_of_channels, within
from dort_compare.lowering.ops.operands import Number
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten


@lowering(aten._fake_quantize_learnable_per_tensor_affine.default)
def fake_quantize_learnable_per_tensor(
    op: Builder,
    x: ir.Value,
    scale: ir.Value,
    zero_point: ir.Value,
    quant_min: int,
    quant_max: int,
    grad_factor: Number = 1,
) -> ir.Value:
    """_fake_quantize_learnable_per_tensor_affine(Tensor self, Tensor scale, Tensor zero_point, int quant_min, ...)
    -> Tensor
    """
    zero_point = within(op, op.Round(first(op, zero_point)), quant_min, quant_max)
    return on_steps(op, x, first(op, scale), op.cast(zero_point, torch.int64), quant_min, quant_max)[0]


@lowering(aten._fake_quantize_learnable_per_channel_affine.default)
def fake_quantize_learnable_per_channel(
    op: Builder,
    x: ir.Value,
    scale: ir.Value,
    zero_point: ir.Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: Number = 1,
) -> ir.Value:
    """_fake_quantize_learnable_per_channel_affine(Tensor self, Tensor scale, Tensor zero_point, int axis, ...)
    -> Tensor
    """
    zero_point = op.cast(within(op, op.Round(zero_point), quant_min, quant_max), torch.int32)
    return on_steps_of_channels(op, x, scale, zero_point, axis, quant_min, quant_max)[0]
