"""Variances and standard deviations."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import Operand
from dort_compare.lowering.ops.reduction import Dims, reduce, reduced_dims
from dort_compare.lowering.precision import in_float32
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import product
from dort_compare.lowering.values import Dim, dtype_of, shape_of

aten = torch.ops.aten
prims = torch.ops.prims


@lowering(prims.var.default)
@in_float32
def prims_var(op: Builder, x: ir.Value, dims: Dims, correction: Operand | None = 1, **_: Any) -> ir.Value:
    """var(Tensor inp, int[]? dims, float? correction=1, *, ScalarType? output_dtype=None) -> Tensor"""
    return _spread(op, x, dims, correction, keepdim=False)[0]


@lowering(aten.var.correction)
@in_float32
def var(
    op: Builder, x: ir.Value, dim: Dims = None, *, correction: Operand | None = None, keepdim: bool = False
) -> ir.Value:
    """var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor"""
    return _spread(op, x, dim, correction, keepdim)[0]


@lowering(aten.std.correction)
@in_float32
def std(
    op: Builder, x: ir.Value, dim: Dims = None, *, correction: Operand | None = None, keepdim: bool = False
) -> ir.Value:
    """std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor"""
    return op.Sqrt(_spread(op, _wide(op, x), dim, correction, keepdim)[0])


@lowering(aten.var_mean.correction)
@in_float32
def var_mean(
    op: Builder, x: ir.Value, dim: Dims = None, *, correction: Operand | None = None, keepdim: bool = False
) -> tuple[ir.Value, ir.Value]:
    """var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) ..."""
    return _spread(op, x, dim, correction, keepdim)


@lowering(aten.std_mean.correction)
@in_float32
def std_mean(
    op: Builder, x: ir.Value, dim: Dims = None, *, correction: Operand | None = None, keepdim: bool = False
) -> tuple[ir.Value, ir.Value]:
    """std_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) ..."""
    variance, mean = _spread(op, _wide(op, x), dim, correction, keepdim)
    return op.Sqrt(variance), mean


def _wide(op: Builder, x: ir.Value) -> ir.Value:
    """In float64, as torch keeps the variance that it takes the root of: in float32 the squares of what is beyond 1e19
    or below 1e-19 are infinite or zero."""
    if x.dtype == ir.DataType.DOUBLE:
        return x
    op.computing_in(torch.float64)
    wide = op.cast(x, torch.float64)
    wide.meta.update(x.meta)
    return wide


def _spread(
    op: Builder, x: ir.Value, dim: Dims, correction: Operand | None, keepdim: bool
) -> tuple[ir.Value, ir.Value]:
    """Variance and mean.

    The squares of what departs from the mean are summed and divided by their number less the correction, or by 0 where
    that is more. The mean is rounded, by which all that departs is off alike; what that adds to the sum is taken off by
    the corrected two-pass algorithm of Chan, Golub & LeVeque, "Algorithms for computing the sample variance" (1983).
    The mean of nothing is NaN.
    """
    rank = len(shape_of(x))
    dims = reduced_dims(dim, rank)
    sizes = [op.size(x, d) for d in dims]
    operator = "ReduceSum" if 0 in sizes else "ReduceMean"
    mean = reduce(op, operator, x, dim, True, rank)
    if 0 in sizes:
        mean = op.Div(mean, 0)
    departure = op.Sub(x, mean)
    squares, off = (
        reduce(op, "ReduceSum", each, dim, keepdim, rank) for each in (op.Mul(departure, departure), departure)
    )
    count = product(op, sizes)
    squares = _centred(op, squares, off, count)
    kept_mean = mean if keepdim or not dims else op.Squeeze(mean, op.const(dims))
    return op.Div(squares, _divisor(op, x, count, 1 if correction is None else correction)), kept_mean


def _centred(op: Builder, squares: ir.Value, off: ir.Value, count: Dim) -> ir.Value:
    """The sum of the squares of what departs from the exact mean, of that from a rounded one, by which the sum of
    ``count`` departures is ``off``; it stays infinite where it has overflowed, and is never negative."""
    largest = torch.finfo(dtype_of(squares)).max
    excess = op.Min(op.Mul(off, op.Div(off, op.CastLike(op.const(count), squares))), largest)
    return op.Max(op.Sub(squares, excess), 0)


def _divisor(op: Builder, x: ir.Value, count: Dim, correction: Operand) -> float | ir.Value:
    if isinstance(count, int) and not isinstance(correction, ir.Value):
        return max(count - correction, 0)
    left_out = op.CastLike(correction, x) if isinstance(correction, ir.Value) else correction
    return op.Max(op.Sub(op.CastLike(op.const(count), x), left_out), 0)
