"""To a quantized dtype and back, by the operators that torch's export leaves of a model that was converted to it.

They stand in ``torch.ao.quantization.fx._decomposed``, which whoever converts a model imports.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.fake_quantize import along, reciprocal, within
from dort_compare.lowering.ops.operands import Number, only, promoted_dtype
from dort_compare.lowering.precision import opmath
from dort_compare.lowering.registry import lowering_by_name
from dort_compare.lowering.values import dtype_of, fake_of, is_floating, shape_of


@lowering_by_name(
    "quantized_decomposed::quantize_per_tensor",
    "quantized_decomposed::quantize_per_tensor.tensor",
)
def quantize_per_tensor(
    op: Builder,
    x: ir.Value,
    scale: Number | ir.Value,
    zero_point: Number | ir.Value,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> ir.Value:
    """quantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype)
    -> Tensor
    """
    inverse = op.cast(reciprocal(op, _number(op, scale, torch.float64)), torch.float32)
    steps = op.Round(op.Mul(op.cast(x, torch.float32), inverse))
    whole = op.Add(steps, _number(op, zero_point, torch.float32))
    return op.cast(within(op, whole, quant_min, quant_max), dtype)


@lowering_by_name(
    "quantized_decomposed::dequantize_per_tensor",
    "quantized_decomposed::dequantize_per_tensor.tensor",
)
def dequantize_per_tensor(
    op: Builder,
    x: ir.Value,
    scale: Number | ir.Value,
    zero_point: Number | ir.Value,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> ir.Value:
    """dequantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype,
    *, ScalarType? out_dtype=None) -> Tensor

    The difference is rounded to the dtype of the result, and the product again.
    """
    rounded, wide = op.result.dtype, opmath(op.result.dtype)
    x = op.cast(op.cast(x, rounded), wide)
    difference = op.cast(op.cast(op.Sub(x, _number(op, zero_point, wide)), rounded), wide)
    return op.cast(op.Mul(difference, _number(op, scale, wide)), rounded)


def _number(op: Builder, value: Number | ir.Value, dtype: torch.dtype) -> ir.Value:
    return only(op, value, dtype) if isinstance(value, ir.Value) else op.const(value, dtype)


@lowering_by_name("quantized_decomposed::quantize_per_channel")
def quantize_per_channel(
    op: Builder,
    x: ir.Value,
    scales: ir.Value,
    zero_points: ir.Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> ir.Value:
    """quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max,
    ScalarType dtype) -> Tensor
    """
    rank = len(shape_of(x))
    wide = torch.promote_types(torch.float32, dtype_of(scales))
    inverse = op.cast(reciprocal(op, along(op, scales, axis, rank)), wide)
    steps = op.Round(op.Mul(op.cast(x, wide), inverse))
    whole = op.Add(steps, op.cast(along(op, zero_points, axis, rank), wide))
    return op.cast(within(op, whole, quant_min, quant_max), dtype)


@lowering_by_name("quantized_decomposed::dequantize_per_channel")
def dequantize_per_channel(
    op: Builder,
    x: ir.Value,
    scales: ir.Value,
    zero_points: ir.Value | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> ir.Value:
    """dequantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis, int quant_min, int quant_max,
    ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor

    The difference wraps around where integers do.
    """
    rank, common = len(shape_of(x)), fake_of(x).dtype
    difference = op.cast(x, torch.int64)
    if zero_points is not None:
        common = promoted_dtype(x, zero_points)
        wide = torch.int64 if not is_floating(zero_points) else common
        difference = op.Sub(op.cast(x, wide), op.cast(along(op, zero_points, axis, rank), wide))
    wide = torch.promote_types(common, dtype_of(scales))
    product = op.Mul(op.cast(op.cast(difference, common), wide), op.cast(along(op, scales, axis, rank), wide))
    return op.cast(product, op.result.dtype)
