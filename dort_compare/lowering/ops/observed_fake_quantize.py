"""Rounding to the steps of a quantized dtype that moving averages of the smallest and largest element span."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.choose_qparams import choose_qparams
from dort_compare.lowering.ops.extremes import extreme
from dort_compare.lowering.ops.fake_quantize import is_set, on_steps, on_steps_of_channels, where
from dort_compare.lowering.ops.operands import only
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of, is_empty, shape_of

aten = torch.ops.aten


@lowering(aten._fused_moving_avg_obs_fq_helper_functional.default)
def fused_moving_avg_obs_fake_quant(
    op: Builder,
    x: ir.Value,
    observer_on: ir.Value,
    fake_quant_on: ir.Value,
    running_min: ir.Value,
    running_max: ir.Value,
    scale: ir.Value,
    zero_point: ir.Value,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> tuple[ir.Value, ...]:
    """_fused_moving_avg_obs_fq_helper_functional(Tensor self, Tensor observer_on, Tensor fake_quant_on, ...)
    -> (Tensor output, Tensor mask, Tensor running_min_out, Tensor running_max_out, Tensor scale_out, Tensor
    zero_point_out)

    Scale and zero point change while fake quantization is on.
    """
    if is_empty(running_min):
        raise op.unsupported("statistics of no size yet, which eager torch resizes in a first step")
    rank = len(shape_of(x))
    reduced = [d for d in range(rank) if d != ch_axis] if per_row_fake_quant else None
    observes, quantizes = is_set(op, observer_on), is_set(op, fake_quant_on)
    ends = [extreme(op, operator, x, reduced, False, rank) for operator in ("ReduceMin", "ReduceMax")]
    low, high = (
        op.Where(observes, _averaged(op, running, end, averaging_const), running)
        for running, end in zip((running_min, running_max), ends, strict=True)
    )
    chosen = choose_qparams(op, low, high, quant_min, quant_max, symmetric_quant)
    scale, zero_point = (
        op.Where(quantizes, op.Reshape(op.cast(new, dtype_of(old)), op.Shape(old)), old)
        for new, old in zip(chosen, (scale, zero_point), strict=True)
    )
    if per_row_fake_quant:
        quantized = on_steps_of_channels(op, x, scale, zero_point, ch_axis, quant_min, quant_max)
    else:
        numbers = only(op, scale, torch.float32), only(op, zero_point, torch.int32)
        quantized = on_steps(op, x, *numbers, quant_min, quant_max)
    return *where(op, quantizes, quantized, x), low, high, scale, zero_point


def _averaged(op: Builder, running: ir.Value, current: ir.Value, averaging_const: float) -> ir.Value:
    """The running average moved to the current value; that itself at first, where the average is infinite."""
    moved = op.Add(running, op.Mul(op.Sub(current, running), averaging_const))
    return op.Where(op.IsInf(running), current, moved)
