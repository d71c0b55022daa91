"""Signs, that of zero and of infinity among them: sign, signbit, copysign, heaviside, isinf and their kin.

ONNX Runtime's Where on CPU makes 0 of a -0 that it takes from its first choice, so signs are multiplied with.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import Operand, in_kernel_dtype
from dort_compare.lowering.precision import in_float32, in_int64
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of, is_floating

aten = torch.ops.aten
prims = torch.ops.prims


@lowering(aten.abs.default, prims.abs.default)
@in_int64
def absolute(op: Builder, x: ir.Value) -> ir.Value:
    """abs(Tensor self) -> Tensor"""
    return op.Abs(x)


@lowering(aten.neg.default, prims.neg.default)
@in_int64
def neg(op: Builder, x: ir.Value) -> ir.Value:
    """neg(Tensor self) -> Tensor"""
    return op.Neg(x)


@lowering(aten.sign.default, aten.sgn.default, prims.sign.default)
@in_float32
@in_int64
def sign(op: Builder, x: ir.Value) -> ir.Value:
    """sign(Tensor self) -> Tensor

    Of a floating x two comparisons, 0 where it is NaN; ONNX leaves the sign of that NaN, and takes longer.
    """
    if not is_floating(x):
        return op.Sign(x)
    is_above, is_below = (op.cast(found, dtype_of(x)) for found in (op.Greater(x, 0), op.Less(x, 0)))
    return op.Sub(is_above, is_below)


@lowering(aten.signbit.default)
@in_float32
@in_int64
def signbit(op: Builder, x: ir.Value) -> ir.Value:
    """signbit(Tensor self) -> Tensor

    False where x is NaN: its sign, which no arithmetic tells, is lost.
    """
    return is_negative(op, x) if is_floating(x) else op.Less(x, 0)


def is_negative(op: Builder, x: ir.Value) -> ir.Value:
    """Whether a floating x is below zero or is -0, of which the reciprocal is -inf."""
    return op.Less(op.Where(op.Equal(x, 0), op.Reciprocal(x), x), 0)


def with_sign(op: Builder, magnitude: ir.Value, x: ir.Value) -> ir.Value:
    """A floating ``magnitude``, at least 0, with the sign of ``x``."""
    return op.Mul(magnitude, op.Where(is_negative(op, x), op.const(-1.0, dtype_of(x)), 1.0))


@lowering(aten.copysign.Tensor, aten.copysign.Scalar)
@in_kernel_dtype()
def copysign(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """copysign.Tensor(Tensor self, Tensor other) -> Tensor

    A NaN in ``other`` counts as positive.
    """
    return with_sign(op, op.Abs(x), y)


@lowering(aten.heaviside.default)
@in_kernel_dtype()
def heaviside(op: Builder, x: ir.Value, values: ir.Value) -> ir.Value:
    """heaviside(Tensor self, Tensor values) -> Tensor

    0 below zero and at NaN, 1 above, ``values`` at zero.
    """
    step = op.CastLike(op.Greater(x, 0), x)
    return op.Where(op.Equal(x, 0), values, step)


def _floating(op: Builder, x: ir.Value) -> ir.Value:
    return x if is_floating(x) else op.cast(x, torch.float32)


@lowering(aten.isnan.default)
@in_float32
def isnan(op: Builder, x: ir.Value) -> ir.Value:
    """isnan(Tensor self) -> Tensor"""
    return op.IsNaN(_floating(op, x))


@lowering(aten.isfinite.default, prims.isfinite.default)
@in_float32
def isfinite(op: Builder, x: ir.Value) -> ir.Value:
    """isfinite(Tensor self) -> Tensor"""
    return op.Less(op.Abs(_floating(op, x)), math.inf)


def _infinite(positive: int, negative: int) -> Callable[[Builder, ir.Value], ir.Value]:
    @in_float32
    def lowered(op: Builder, x: ir.Value) -> ir.Value:
        return op.IsInf(_floating(op, x), detect_positive=positive, detect_negative=negative)

    return lowered


lowering(aten.isinf.default)(_infinite(1, 1))
lowering(aten.isposinf.default)(_infinite(1, 0))
lowering(aten.isneginf.default)(_infinite(0, 1))


@lowering(aten.nan_to_num.default)
def nan_to_num(
    op: Builder, x: ir.Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> ir.Value:
    """nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor"""
    dtype = op.result.dtype
    if not dtype.is_floating_point:
        return x
    limits = torch.finfo(dtype)
    return _without_special(
        op, x, nan or 0.0, limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    )


@in_float32
def _without_special(op: Builder, x: ir.Value, nan: Operand, posinf: Operand, neginf: Operand) -> ir.Value:
    number = op.Where(op.IsNaN(x), nan, x)
    number = op.Where(op.Equal(x, math.inf), posinf, number)
    return op.Where(op.Equal(x, -math.inf), neginf, number)
