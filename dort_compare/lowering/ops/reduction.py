"""Sums, means and extremes along dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder, shape_of
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten
Dims = Sequence[int] | int | None


def _reduce(op: Builder, operator: str, x: ir.Value, dim: Dims, keepdim: bool) -> ir.Value:
    """One ONNX reduction; no dimension, and an empty list of them, mean all."""
    rank = len(shape_of(x))
    x = op.cast(x, opmath(op.result.dtype))
    if rank == 0:
        return x
    dims = [dim] if isinstance(dim, int) else list(dim or range(rank))
    return getattr(op, operator)(x, op.dims([d % rank for d in dims]), keepdims=int(keepdim))


@lowering(aten.sum.dim_IntList)
@in_float32
def sum_dim(op: Builder, x: ir.Value, dim: Dims, keepdim: bool = False, **_: Any) -> ir.Value:
    """sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"""
    return _reduce(op, "ReduceSum", x, dim, keepdim)


@lowering(aten.sum.default)
@in_float32
def sum_all(op: Builder, x: ir.Value, **_: Any) -> ir.Value:
    """sum(Tensor self, *, ScalarType? dtype=None) -> Tensor"""
    return _reduce(op, "ReduceSum", x, None, False)


@lowering(aten.mean.dim)
@in_float32
def mean_dim(op: Builder, x: ir.Value, dim: Dims, keepdim: bool = False, **_: Any) -> ir.Value:
    """mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"""
    return _reduce(op, "ReduceMean", x, dim, keepdim)


@lowering(aten.mean.default)
@in_float32
def mean_all(op: Builder, x: ir.Value, **_: Any) -> ir.Value:
    """mean(Tensor self, *, ScalarType? dtype=None) -> Tensor"""
    return _reduce(op, "ReduceMean", x, None, False)


@lowering(aten.amax.default)
def amax(op: Builder, x: ir.Value, dim: Dims = (), keepdim: bool = False) -> ir.Value:
    """amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor"""
    return _extreme(op, "ReduceMax", x, dim, keepdim)


@lowering(aten.amin.default)
def amin(op: Builder, x: ir.Value, dim: Dims = (), keepdim: bool = False) -> ir.Value:
    """amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor"""
    return _extreme(op, "ReduceMin", x, dim, keepdim)


@in_float32
def _extreme(op: Builder, operator: str, x: ir.Value, dim: Dims, keepdim: bool) -> ir.Value:
    return _reduce(op, operator, x, dim, keepdim)


@lowering(aten.cumsum.default)
@in_float32
def cumsum(op: Builder, x: ir.Value, dim: int, **_: Any) -> ir.Value:
    """cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor"""
    x = op.cast(x, opmath(op.result.dtype))
    return op.CumSum(x, op.const(dim)) if op.result.ndim else x
