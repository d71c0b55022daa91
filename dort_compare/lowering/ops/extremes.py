"""Largest and smallest elements, and where they stand."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.comparison import takes_halves_apart
from dort_compare.lowering.ops.operands import flags_dtype
from dort_compare.lowering.ops.reduction import Dims, reduce, reduced_dims
from dort_compare.lowering.precision import in_float32, in_int64, raise_narrow
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import fake_of, is_floating, shape_of

aten = torch.ops.aten
prims = torch.ops.prims


@lowering(aten.amax.default, prims.amax.default)
@in_float32
@in_int64
def amax(op: Builder, x: ir.Value, dim: Dims = (), keepdim: bool = False, **_: Any) -> ir.Value:
    """amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor"""
    return extreme(op, "ReduceMax", x, dim, keepdim, len(shape_of(x)))


@lowering(aten.amin.default, prims.amin.default)
@in_float32
@in_int64
def amin(op: Builder, x: ir.Value, dim: Dims = (), keepdim: bool = False, **_: Any) -> ir.Value:
    """amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor"""
    return extreme(op, "ReduceMin", x, dim, keepdim, len(shape_of(x)))


@lowering(aten.max.default)
def max_all(op: Builder, x: ir.Value) -> ir.Value:
    """max(Tensor self) -> Tensor"""
    return amax(op, x)


@lowering(aten.min.default)
def min_all(op: Builder, x: ir.Value) -> ir.Value:
    """min(Tensor self) -> Tensor"""
    return amin(op, x)


@lowering(aten.aminmax.default)
def aminmax(op: Builder, x: ir.Value, *, dim: int | None = None, keepdim: bool = False) -> tuple[ir.Value, ir.Value]:
    """aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)"""
    dtype = fake_of(x).dtype
    rank = len(shape_of(x))
    wide = raise_narrow(op, x)
    smallest, largest = (extreme(op, operator, wide, dim, keepdim, rank) for operator in ("ReduceMin", "ReduceMax"))
    if keepdim and dim is None:
        ones = op.const([1] * rank, torch.int64)
        smallest, largest = op.Reshape(smallest, ones), op.Reshape(largest, ones)
    return op.cast(smallest, dtype), op.cast(largest, dtype)


def extreme(op: Builder, operator: str, x: ir.Value, dim: Dims, keepdim: bool, rank: int) -> ir.Value:
    """The extreme, or NaN where one is among the elements: ONNX Runtime may overlook it."""
    if takes_halves_apart(op, op.result_dtype):
        return _extreme_by_place(op, operator, x, reduced_dims(dim, rank), keepdim)
    extreme = reduce(op, operator, x, dim, keepdim, rank)
    if not op.result_dtype.is_floating_point:
        return extreme
    has_nan = reduce(op, "ReduceMax", op.cast(op.IsNaN(x), flags_dtype(op)), dim, keepdim, rank)
    nan = op.CastLike(op.const(math.nan, torch.float32), extreme)
    return op.Where(op.cast(has_nan, torch.bool), nan, extreme)


def _extreme_by_place(op: Builder, operator: str, x: ir.Value, dims: list[int], keepdim: bool) -> ir.Value:
    """The element at the ``ArgMax`` or ``ArgMin``, dimension by dimension."""
    for dim in dims:
        place = getattr(op, operator.replace("Reduce", "Arg"))(x, axis=dim, keepdims=1)
        x = op.GatherElements(x, place, axis=dim)
    return x if keepdim or not dims else op.Squeeze(x, dims)


@lowering(aten.argmax.default)
def argmax(op: Builder, x: ir.Value, dim: int | None = None, keepdim: bool = False) -> ir.Value:
    """argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor"""
    return _argument(op, "ArgMax", x, dim, keepdim)


@lowering(aten.argmin.default)
def argmin(op: Builder, x: ir.Value, dim: int | None = None, keepdim: bool = False) -> ir.Value:
    """argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor"""
    return _argument(op, "ArgMin", x, dim, keepdim)


def _argument(op: Builder, operator: str, x: ir.Value, dim: int | None, keepdim: bool) -> ir.Value:
    rank = len(shape_of(x))
    if dim is not None and rank:
        places = _places(op, operator, x, dim)
        return places if keepdim else op.Squeeze(places, [dim])
    place = _places(op, operator, op.Reshape(x, [-1]), 0)
    return op.Reshape(place, op.const([1] * rank if keepdim else [], torch.int64))


def _places(op: Builder, operator: str, x: ir.Value, dim: int) -> ir.Value:
    """Where the first extreme, or the first NaN, stands along ``dim``, which stays with size 1.

    Lines that hold a NaN are searched for it: they are replaced by flags of which that of NaN is the extreme.
    """
    if x.dtype in (ir.DataType.BOOL, ir.DataType.INT16):
        x = op.cast(x, torch.int64)
    if is_floating(x):
        is_nan = op.IsNaN(x)
        flags = op.cast(is_nan if operator == "ArgMax" else op.Not(is_nan), torch.float32)
        has_nan = op.ReduceMax(op.cast(is_nan, flags_dtype(op)), [dim], keepdims=1)
        x = op.Where(op.cast(has_nan, torch.bool), op.CastLike(flags, x), x)
    return getattr(op, operator)(x, axis=dim, keepdims=1)


@lowering(aten.max.dim)
def max_dim(op: Builder, x: ir.Value, dim: int, keepdim: bool = False) -> tuple[ir.Value, ir.Value]:
    """max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"""
    return _with_place(op, "ArgMax", x, dim, keepdim)


@lowering(aten.min.dim)
def min_dim(op: Builder, x: ir.Value, dim: int, keepdim: bool = False) -> tuple[ir.Value, ir.Value]:
    """min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"""
    return _with_place(op, "ArgMin", x, dim, keepdim)


def _with_place(op: Builder, operator: str, x: ir.Value, dim: int, keepdim: bool) -> tuple[ir.Value, ir.Value]:
    if not shape_of(x):
        return op.Identity(x), op.Identity(op.const(0))
    return picked(op, x, _places(op, operator, x, dim), dim, keepdim)


def picked(op: Builder, x: ir.Value, places: ir.Value, dim: int, keepdim: bool) -> tuple[ir.Value, ir.Value]:
    """The elements at ``places``, one along ``dim``, and the places."""
    values = op.GatherElements(x, places, axis=dim)
    return (values, places) if keepdim else (op.Squeeze(values, [dim]), op.Squeeze(places, [dim]))
