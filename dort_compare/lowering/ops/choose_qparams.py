"""The steps of a quantized dtype that span a range of numbers, as FBGEMM's ``ChooseQuantizationParams`` has them."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder

_SMALL_SCALE = torch.tensor(6.1e-5).item()
"""The smallest, as float32 holds it."""


def choose_qparams(
    op: Builder, smallest: ir.Value, largest: ir.Value, quant_min: int, quant_max: int, symmetric: bool
) -> tuple[ir.Value, ir.Value]:
    """The scale in float32 and the zero point in float64 of steps that span 0 and two float32 numbers.

    If ``symmetric``, the middle step stands for a 0 between both.
    """
    steps = quant_max - quant_min
    if symmetric:
        smallest, largest = _symmetric(op, smallest, largest, steps)
    low, high = op.Where(op.Less(0.0, smallest), 0.0, smallest), op.Where(op.Less(largest, 0.0), 0.0, largest)
    width = op.Sub(op.cast(high, torch.float64), op.cast(low, torch.float64))
    scale = op.cast(op.Div(width, steps), torch.float32)
    scale = op.Where(op.Or(op.Equal(scale, 0.0), op.IsInf(op.Div(1.0, scale))), 0.1, scale)
    low, high, scale = _no_smaller(op, low, high, scale)
    zero_point = _zero_point(op, low, high, scale, quant_min, quant_max)
    if symmetric:
        zero_point = op.Where(_are_around_0(op, low, high), (quant_min + quant_max) / 2, zero_point)
    whole = op.Where(op.Greater(zero_point, quant_max), quant_max, op.Round(zero_point))
    return scale, op.Where(op.Less(zero_point, quant_min), quant_min, whole)


def _are_around_0(op: Builder, low: ir.Value, high: ir.Value) -> ir.Value:
    return op.And(op.Less(low, 0.0), op.Greater(high, 0.0))


def _symmetric(op: Builder, low: ir.Value, high: ir.Value, steps: int) -> tuple[ir.Value, ir.Value]:
    """Widened on one side until 0 is in the middle, where it is between both."""
    below, above = -(steps // 2 + 1), steps // 2
    scale = op.Max(op.Abs(op.Div(low, below)), op.Abs(op.Div(high, above)))
    is_around = _are_around_0(op, low, high)
    widened = (op.cast(op.Mul(op.cast(scale, torch.float64), end), torch.float32) for end in (below, above))
    return tuple(op.Where(is_around, new, old) for new, old in zip(widened, (low, high), strict=True))


def _no_smaller(op: Builder, low: ir.Value, high: ir.Value, scale: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """A scale below the smallest becomes that, and the range grows with it."""
    amplifier = op.Div(_SMALL_SCALE, scale)
    is_small = op.Less(scale, _SMALL_SCALE)
    low, high = (op.Where(is_small, op.Mul(end, amplifier), end) for end in (low, high))
    return low, high, op.Where(is_small, _SMALL_SCALE, scale)


def _zero_point(
    op: Builder, low: ir.Value, high: ir.Value, scale: ir.Value, quant_min: int, quant_max: int
) -> ir.Value:
    """Not yet whole: from the end of the range that promises the smaller error."""
    below, above = (op.Div(*(op.cast(value, torch.float64) for value in (end, scale))) for end in (low, high))
    errors = op.Sub(abs(quant_min), op.Abs(below)), op.Sub(abs(quant_max), op.Abs(above))
    return op.Where(op.Less(*errors), op.Sub(quant_min, below), op.Sub(quant_max, above))
