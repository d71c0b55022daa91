"""Sums, means and extremes along dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder, shape_of
from dort_compare.lowering.precision import in_float32, in_int64, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import product

aten = torch.ops.aten
prims = torch.ops.prims
Dims = Sequence[int] | int | None


def _reduce(op: Builder, operator: str, x: ir.Value, dim: Dims, keepdim: bool, rank: int) -> ir.Value:
    """One ONNX reduction of a tensor with ``rank`` dimensions."""
    dims = _dims(dim, rank)
    return getattr(op, operator)(x, op.dims(dims), keepdims=int(keepdim)) if dims else x


def _dims(dim: Dims, rank: int) -> list[int]:
    """The dimensions to reduce, counted from the front; no dimension, and an empty list of them, mean all."""
    dims = [dim] if isinstance(dim, int) else list(dim or range(rank))
    return [d % rank for d in dims] if rank else []


def _wide(op: Builder, x: ir.Value) -> ir.Value:
    """The terms of a sum in the dtype that torch adds them in: int64 for integers and booleans."""
    dtype = op.result.dtype
    return op.cast(x, opmath(dtype) if dtype.is_floating_point else torch.int64)


@lowering(aten.sum.dim_IntList)
@in_float32
def sum_dim(op: Builder, x: ir.Value, dim: Dims, keepdim: bool = False, **_: Any) -> ir.Value:
    """sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor

    ONNX Runtime adds int64 in float64: sums of integers are exact up to 2**53.
    """
    return _reduce(op, "ReduceSum", _wide(op, x), dim, keepdim, rank=len(shape_of(x)))


@lowering(prims.sum.default)
@in_float32
def prims_sum(op: Builder, x: ir.Value, dims: Dims, **_: Any) -> ir.Value:
    """sum(Tensor inp, int[]? dims, *, ScalarType? output_dtype=None) -> Tensor"""
    return sum_dim(op, x, dims)


@lowering(aten.sum.default)
@in_float32
def sum_all(op: Builder, x: ir.Value, **_: Any) -> ir.Value:
    """sum(Tensor self, *, ScalarType? dtype=None) -> Tensor"""
    return sum_dim(op, x, None)


@lowering(aten.mean.dim)
@in_float32
def mean_dim(op: Builder, x: ir.Value, dim: Dims, keepdim: bool = False, **_: Any) -> ir.Value:
    """mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor

    The mean of nothing is NaN in torch, 0 in ONNX Runtime.
    """
    shape = shape_of(x)
    if any(shape[d] == 0 for d in _dims(dim, len(shape))):
        return op.Div(_reduce(op, "ReduceSum", _wide(op, x), dim, keepdim, len(shape)), 0)
    return _reduce(op, "ReduceMean", _wide(op, x), dim, keepdim, len(shape))


@lowering(aten.mean.default)
@in_float32
def mean_all(op: Builder, x: ir.Value, **_: Any) -> ir.Value:
    """mean(Tensor self, *, ScalarType? dtype=None) -> Tensor"""
    return mean_dim(op, x, None)


@lowering(prims.var.default)
@in_float32
def var(op: Builder, x: ir.Value, dims: Dims, correction: float = 1, **_: Any) -> ir.Value:
    """var(Tensor inp, int[]? dims, float? correction=1, *, ScalarType? output_dtype=None) -> Tensor

    The squares of what departs from the mean, summed and divided by their number less the correction.
    """
    shape = shape_of(x)
    if any(shape[d] == 0 for d in _dims(dims, len(shape))):
        raise op.unsupported("a variance along no elements")
    departure = op.Sub(x, _reduce(op, "ReduceMean", x, dims, True, len(shape)))
    squares = _reduce(op, "ReduceSum", op.Mul(departure, departure), dims, False, len(shape))
    count = product(op, (op.size(x, d) for d in _dims(dims, len(shape))))
    if isinstance(count, int):
        return op.Div(squares, max(count - correction, 0))
    return op.Div(squares, op.Max(op.Sub(op.const(count, opmath(op.result.dtype)), correction), 0))


@lowering(aten.amax.default)
@in_float32
@in_int64
def amax(op: Builder, x: ir.Value, dim: Dims = (), keepdim: bool = False) -> ir.Value:
    """amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor"""
    return _extreme(op, "ReduceMax", x, dim, keepdim)


@lowering(aten.amin.default)
@in_float32
@in_int64
def amin(op: Builder, x: ir.Value, dim: Dims = (), keepdim: bool = False) -> ir.Value:
    """amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor"""
    return _extreme(op, "ReduceMin", x, dim, keepdim)


def _extreme(op: Builder, operator: str, x: ir.Value, dim: Dims, keepdim: bool) -> ir.Value:
    """The extreme, or NaN where one is among the elements: ONNX Runtime may overlook it."""
    rank = len(shape_of(x))
    extreme = _reduce(op, operator, x, dim, keepdim, rank)
    if not op.result.dtype.is_floating_point:
        return extreme
    has_nan = _reduce(op, "ReduceMax", op.cast(op.IsNaN(x), torch.uint8), dim, keepdim, rank)
    return op.Where(op.cast(has_nan, torch.bool), op.const(math.nan, opmath(op.result.dtype)), extreme)


@lowering(aten.cumsum.default)
@in_float32
def cumsum(op: Builder, x: ir.Value, dim: int, **_: Any) -> ir.Value:
    """cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor"""
    terms = _wide(op, x)
    return op.CumSum(terms, op.const(dim)) if op.result.ndim else terms
