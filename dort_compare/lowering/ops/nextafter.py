"""The floating number next to another one, by arithmetic alone."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import in_kernel_dtype
from dort_compare.lowering.ops.signs import is_negative
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of

aten = torch.ops.aten
prims = torch.ops.prims


@lowering(aten.nextafter.default, prims.nextafter.default)
@in_kernel_dtype()
def nextafter(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """nextafter(Tensor self, Tensor other) -> Tensor

    ``other`` where it equals ``self``; away from zero where it lies further out on the same side, else towards zero.
    """
    same, from_zero = op.Equal(x, y), op.Equal(x, 0)
    negative = op.Or(op.And(from_zero, is_negative(op, y)), op.And(op.Not(from_zero), is_negative(op, x)))
    outwards = op.Or(from_zero, op.Equal(op.Less(y, x), negative))
    size = op.Where(same, op.Abs(x), _neighbour(op, op.Abs(x), outwards, op.result.dtype))
    signed = op.Mul(size, op.Where(negative, op.const(-1.0, dtype_of(x)), 1.0))
    return op.Where(op.Or(op.IsNaN(x), op.IsNaN(y)), math.nan, signed)


def _neighbour(op: Builder, size: ir.Value, outwards: ir.Value, dtype: torch.dtype) -> ir.Value:
    """The number of ``dtype`` next to a positive one.

    0.6 eps of it is 0.6 to 1.2 units of its last place, and so rounds to one, below a power of two to the half that is
    one there. Close to zero all is scaled up, lest the unit itself be rounded, and one is the smallest number.
    """
    limits = torch.finfo(dtype)
    one = op.const(1.0, dtype_of(size))
    scale = op.Where(op.Less(size, 16 * limits.tiny), op.const(1024.0, dtype_of(size)), one)
    scaled = op.Mul(size, scale)
    unit = op.Max(op.Mul(scaled, 0.6 * limits.eps), op.Mul(scale, limits.tiny * limits.eps))
    moved = op.Div(op.Add(scaled, op.Mul(unit, op.Where(outwards, one, -1))), scale)
    return op.Where(op.IsInf(size), limits.max, moved)
