"""The inverses of the trigonometric and hyperbolic functions.

In float32 the ONNX operators; in float64, where ONNX Runtime's CPU provider has none of them, by formula.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.elementary import elementary
from dort_compare.lowering.ops.logarithm import log1p
from dort_compare.lowering.ops.operands import in_kernel_dtype
from dort_compare.lowering.ops.polynomial import polynomial
from dort_compare.lowering.ops.signs import is_negative, with_sign
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of

aten = torch.ops.aten
prims = torch.ops.prims

_ATAN_P = (
    -8.750608600031904122785e-1,
    -1.615753718733365076637e1,
    -7.500855792314704667340e1,
    -1.228866684490136173410e2,
    -6.485021904942025371773e1,
)
_ATAN_Q = (
    1.0,
    2.485846490142306297962e1,
    1.650270098316988542046e2,
    4.328810604912902668951e2,
    4.853903996359136964868e2,
    1.945506571482613964425e2,
)


@elementary(aten.atan.default, prims.atan.default)
def atan(op: Builder, x: ir.Value) -> ir.Value:
    """atan(Tensor self) -> Tensor

    In float64 Cephes' atan.c: |x| is reduced to at most 0.66 by atan(x) = pi/2 - atan(1/x) = pi/4 + atan((x-1)/(x+1)),
    there x + x^3 P(x^2) / Q(x^2).
    """
    if dtype_of(x) == torch.float32:
        return op.Atan(x)
    size = op.Abs(x)
    large, middle = op.Greater(size, 1 + math.sqrt(2)), op.Greater(size, 0.66)
    from_middle = op.Div(op.Sub(size, 1), op.Add(size, 1))
    reduced = op.Where(large, op.Neg(op.Reciprocal(size)), op.Where(middle, from_middle, size))
    offset = op.Where(large, math.pi / 2, op.Where(middle, math.pi / 4, op.const(0, torch.float64)))
    square = op.Mul(reduced, reduced)
    rational = op.Div(op.Mul(square, polynomial(op, square, _ATAN_P)), polynomial(op, square, _ATAN_Q))
    return with_sign(op, op.Add(offset, op.Add(reduced, op.Mul(reduced, rational))), x)


@lowering(aten.atan2.default, prims.atan2.default)
@in_kernel_dtype()
def atan2(op: Builder, y: ir.Value, x: ir.Value) -> ir.Value:
    """atan2(Tensor self, Tensor other) -> Tensor

    The angle of |y| / |x|, 0 or 1 where both are zero or infinite, turned into the quadrant that their signs tell.
    """
    height, width = op.Abs(y), op.Abs(x)
    slope = op.Where(op.Equal(height, width), op.Sign(height), op.Div(height, width))
    angle = atan(op, slope)
    return with_sign(op, op.Where(is_negative(op, x), op.Sub(math.pi, angle), angle), y)


@lowering(aten.angle.default)
@in_kernel_dtype()
def angle(op: Builder, x: ir.Value) -> ir.Value:
    """angle(Tensor self) -> Tensor

    Of real numbers: pi below zero, 0 from there on, NaN at NaN.
    """
    half_turn = op.Where(op.Less(x, 0), op.const(math.pi, dtype_of(x)), 0)
    return op.Where(op.IsNaN(x), x, half_turn)


@elementary(aten.asin.default, prims.asin.default)
def asin(op: Builder, x: ir.Value) -> ir.Value:
    """asin(Tensor self) -> Tensor"""
    if dtype_of(x) == torch.float32:
        return op.Asin(x)
    return atan(op, op.Div(x, op.Sqrt(op.Mul(op.Sub(1, x), op.Add(x, 1)))))


@elementary(aten.acos.default, prims.acos.default)
def acos(op: Builder, x: ir.Value) -> ir.Value:
    """acos(Tensor self) -> Tensor"""
    if dtype_of(x) == torch.float32:
        return op.Acos(x)
    return op.Mul(atan(op, op.Sqrt(op.Div(op.Sub(1, x), op.Add(x, 1)))), 2)


@elementary(aten.asinh.default, prims.asinh.default)
def asinh(op: Builder, x: ir.Value) -> ir.Value:
    """asinh(Tensor self) -> Tensor

    In float64 log(1 + a + a^2 / (1 + sqrt(1 + a^2))) with a = |x|, log(a) + log(2) where a^2 would overflow.
    """
    if dtype_of(x) == torch.float32:
        return op.Asinh(x)
    size = op.Abs(x)
    square = op.Mul(size, size)
    moderate = log1p(op, op.Add(size, op.Div(square, op.Add(op.Sqrt(op.Add(square, 1)), 1))))
    large = op.Add(op.Log(size), math.log(2))
    return with_sign(op, op.Where(op.Greater(size, 1e150), large, moderate), x)


@elementary(aten.acosh.default, prims.acosh.default)
def acosh(op: Builder, x: ir.Value) -> ir.Value:
    """acosh(Tensor self) -> Tensor

    In float64 log(1 + d + sqrt(d) sqrt(x + 1)) with d = x - 1, log(x) + log(2) where the sum would overflow.
    """
    if dtype_of(x) == torch.float32:
        return op.Acosh(x)
    above = op.Sub(x, 1)
    moderate = log1p(op, op.Add(above, op.Mul(op.Sqrt(above), op.Sqrt(op.Add(x, 1)))))
    return op.Where(op.Greater(x, 1e150), op.Add(op.Log(x), math.log(2)), moderate)


@elementary(aten.atanh.default, prims.atanh.default)
def atanh(op: Builder, x: ir.Value) -> ir.Value:
    """atanh(Tensor self) -> Tensor

    In float64 log(1 + 2 x / (1 - x)) / 2.
    """
    if dtype_of(x) == torch.float32:
        return op.Atanh(x)
    size = op.Abs(x)
    return with_sign(op, op.Mul(log1p(op, op.Div(op.Mul(size, 2), op.Sub(1, size))), 0.5), x)
