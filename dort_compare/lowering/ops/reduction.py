"""Sums, means, products and truth along dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import product
from dort_compare.lowering.sums import add_up
from dort_compare.lowering.values import fake_of, is_floating, shape_of

aten = torch.ops.aten
prims = torch.ops.prims
Dims = Sequence[int] | int | None

_HALF = 2**32
_LARGEST = {torch.bool: 1, torch.uint8: 2**8, torch.int8: 2**7, torch.int16: 2**15, torch.int32: 2**31}
"""What no integer of these dtypes exceeds."""


def reduce(op: Builder, operator: str, x: ir.Value, dim: Dims, keepdim: bool, rank: int) -> ir.Value:
    """An ONNX reduction of a tensor with ``rank`` dimensions."""
    dims = reduced_dims(dim, rank)
    if operator in ("ReduceSum", "ReduceMean") and dims:
        return add_up(op, operator, x, dims, keepdims=keepdim)
    return getattr(op, operator)(x, op.dims(dims), keepdims=int(keepdim)) if dims else x


def reduced_dims(dim: Dims, rank: int) -> list[int]:
    """The dimensions to reduce, counted from the front; no dimension, and an empty list of them, mean all."""
    dims = [dim] if isinstance(dim, int) else list(dim or range(rank))
    return [d % rank for d in dims] if rank else []


def widened(op: Builder, x: ir.Value) -> ir.Value:
    """The terms of a sum in the dtype that torch adds them in: int64 for integers and booleans, floats by way of int32
    where the sum is one."""
    dtype = op.result.dtype
    if dtype == torch.int32 and is_floating(x):
        x = op.cast(x, dtype)
    return op.cast(x, opmath(dtype) if dtype.is_floating_point else torch.int64)


@lowering(aten.sum.dim_IntList)
@in_float32
def sum_dim(op: Builder, x: ir.Value, dim: Dims, keepdim: bool = False, **_: Any) -> ir.Value:
    """sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"""
    if op.result.dtype == torch.bool:
        return _truth(op, "ReduceMax", x, None if dim == [] else dim, keepdim)
    rank = len(shape_of(x))
    dims = reduced_dims(dim, rank)
    if op.result.dtype.is_floating_point or not dims:
        return reduce(op, "ReduceSum", widened(op, x), dim, keepdim, rank)
    return _sum_of_integers(op, x, dims, keepdim)


def _sum_of_integers(op: Builder, x: ir.Value, dims: list[int], keepdim: bool) -> ir.Value:
    """The sum of ``x`` in int64, wrapped around as torch's.

    By way of floating dtypes that hold every sum on the way: ONNX Runtime's sums of integers are slower than those of
    float64, in which it makes them. The halves of an int64 are summed apart: exact up to 2**21 terms, as are int32;
    narrower ones always are.
    """
    if fake_of(x).dtype in _LARGEST:
        sizes = [shape_of(x)[d] for d in dims]
        is_known = all(isinstance(size, int) for size in sizes)
        is_small = is_known and math.prod(sizes) * _LARGEST[fake_of(x).dtype] <= 2**24
        return _summed(op, x, dims, keepdim, torch.float32 if is_small else torch.float64)
    terms = widened(op, x)
    low = op.Mod(terms, _HALF) if op.on_cuda else op.BitwiseAnd(terms, _HALF - 1)
    high = op.Mul(op.cast(op.Sub(terms, low), torch.float64), 1 / _HALF)
    low, high = (_summed(op, half, dims, keepdim, torch.float64) for half in (low, high))
    return op.Add(op.Mul(high, _HALF), low)


def _summed(op: Builder, x: ir.Value, dims: list[int], keepdim: bool, dtype: torch.dtype) -> ir.Value:
    return op.cast(op.ReduceSum(op.cast(x, dtype), dims, keepdims=int(keepdim)), torch.int64)


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

    The mean of nothing is NaN in torch, 0 in ONNX Runtime: where a size may be 0, the sum is divided.
    """
    shape = shape_of(x)
    dims = reduced_dims(dim, len(shape))
    if all(statically_known_true(shape[d] != 0) for d in dims):
        return reduce(op, "ReduceMean", widened(op, x), dim, keepdim, len(shape))
    count = op.const(product(op, (op.size(x, d) for d in dims)), opmath(op.result.dtype))
    return op.Div(reduce(op, "ReduceSum", widened(op, x), dim, keepdim, len(shape)), count)


@lowering(aten.mean.default)
@in_float32
def mean_all(op: Builder, x: ir.Value, **_: Any) -> ir.Value:
    """mean(Tensor self, *, ScalarType? dtype=None) -> Tensor"""
    return mean_dim(op, x, None)


@lowering(aten.prod.default)
@in_float32
def prod_all(op: Builder, x: ir.Value, **_: Any) -> ir.Value:
    """prod(Tensor self, *, ScalarType? dtype=None) -> Tensor"""
    return _product(op, x, None, keepdim=False)


@lowering(aten.prod.dim_int)
@in_float32
def prod_dim(op: Builder, x: ir.Value, dim: int, keepdim: bool = False, **_: Any) -> ir.Value:
    """prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"""
    return _product(op, x, dim, keepdim)


@lowering(prims.prod.default)
@in_float32
def prims_prod(op: Builder, x: ir.Value, dims: Dims, **_: Any) -> ir.Value:
    """prod(Tensor inp, int[]? dims, *, ScalarType? output_dtype=None) -> Tensor"""
    return _product(op, x, dims, keepdim=False)


def _product(op: Builder, x: ir.Value, dim: Dims, keepdim: bool) -> ir.Value:
    """Integers are multiplied in pairs: ONNX Runtime's ReduceProd goes through float64."""
    shape = shape_of(x)
    factors = widened(op, x)
    if op.result.dtype.is_floating_point:
        return reduce(op, "ReduceProd", factors, dim, keepdim, len(shape))
    for d in sorted(reduced_dims(dim, len(shape)), reverse=True):
        size = shape[d]
        if not isinstance(size, int):
            raise op.unsupported("a product of integers along a symbolic size")
        factors = _in_pairs(op, factors, d, size)
        factors = factors if keepdim else op.Squeeze(factors, [d])
    return op.cast(factors, op.result.dtype)


def _in_pairs(op: Builder, x: ir.Value, dim: int, size: int) -> ir.Value:
    """The product along ``dim``, which stays with size 1."""
    if size == 0:
        return reduce(op, "ReduceProd", x, dim, keepdim=True, rank=dim + 1)
    while size > 1:
        half, rest = divmod(size, 2)
        parts = op.Split(x, op.const([half, half, rest][: 2 + rest]), axis=dim, _outputs=2 + rest)
        x = op.Mul(parts[0], parts[1])
        x = op.Concat(x, parts[2], axis=dim) if rest else x
        size = half + rest
    return x


@lowering(aten.any.default, aten.any.dim, aten.any.dims)
def any_(op: Builder, x: ir.Value, dim: Dims = None, keepdim: bool = False) -> ir.Value:
    """any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor"""
    return _truth(op, "ReduceMax", x, dim, keepdim)


@lowering(aten.all.default, aten.all.dim, aten.all.dims)
def all_(op: Builder, x: ir.Value, dim: Dims = None, keepdim: bool = False) -> ir.Value:
    """all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor"""
    return _truth(op, "ReduceMin", x, dim, keepdim)


def _truth(op: Builder, operator: str, x: ir.Value, dim: Dims, keepdim: bool) -> ir.Value:
    """The extreme of truth values as bytes; that of none, 0 or 255, is what torch says of none.

    On CUDA any is true if not all are false: of bytes ONNX Runtime finds only the smallest there.
    """
    truth, negated = op.cast(x, torch.bool), op.on_cuda and operator == "ReduceMax"
    truth = op.cast(op.Not(truth) if negated else truth, torch.uint8)
    if dim != []:
        truth = reduce(op, "ReduceMin" if negated else operator, truth, dim, keepdim, len(shape_of(x)))
    found = op.cast(truth, torch.bool)
    return op.cast(op.Not(found) if negated else found, op.result.dtype)
