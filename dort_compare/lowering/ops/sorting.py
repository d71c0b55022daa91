"""Sorting and what it answers: the k largest, the k-th smallest, the median, the most frequent."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder, Dim, is_empty, is_floating, shape_of
from dort_compare.lowering.ops.extremes import picked
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten
Pair = tuple[ir.Value, ir.Value]


def _ranked(op: Builder, x: ir.Value, count: ir.Value, dim: int, largest: bool) -> ir.Value:
    """Where the ``count`` first elements stand along ``dim``, in order; equal ones in theirs, NaN as the largest."""
    if x.dtype == ir.DataType.DOUBLE:
        return _ranked_in_two_passes(op, x, count, dim, largest)
    return _top(op, _keys(op, x), count, dim, largest)


def _length(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    """The size along ``dim`` as a vector of one."""
    size = x.shape[dim] if x.shape is not None else None
    return op.const([size]) if isinstance(size, int) else op.Gather(op.Shape(x), op.const([dim]))


def _top(op: Builder, keys: ir.Value, count: ir.Value, dim: int, largest: bool) -> ir.Value:
    """TopK leaves equal elements in their order."""
    return op.TopK(keys, count, axis=dim, largest=int(largest), sorted=1, _outputs=2)[1]


def _keys(op: Builder, x: ir.Value) -> ir.Value:
    """What orders the elements as torch does, for ONNX Runtime does not order NaN.

    Narrower floats become float64, NaN infinite and infinity 1e300.
    """
    if x.dtype == ir.DataType.BOOL:
        return op.cast(x, torch.uint8)
    if not is_floating(x):
        return x
    wide = op.cast(x, torch.float64)
    number = lambda value: op.const(value, torch.float64)  # noqa: E731
    finite = op.Where(op.Equal(wide, number(math.inf)), number(1e300), wide)
    return op.Where(op.IsNaN(x), number(math.inf), finite)


def _ranked_in_two_passes(op: Builder, x: ir.Value, count: ir.Value, dim: int, largest: bool) -> ir.Value:
    """By value with NaN as infinity, then by whether it is NaN."""
    everything = _length(op, x, dim)
    is_nan = op.IsNaN(x)
    by_value = _top(op, op.Where(is_nan, op.const(math.inf, torch.float64), x), everything, dim, largest)
    flags = op.GatherElements(op.cast(is_nan, torch.uint8), by_value, axis=dim)
    by_nan = _top(op, flags, count, dim, largest)
    return op.GatherElements(by_value, by_nan, axis=dim)


def ascending(op: Builder, x: ir.Value) -> ir.Value:
    """Where the elements of a vector stand in rising order; equal ones in theirs, NaN as the largest."""
    return _ranked(op, x, op.Shape(x), 0, largest=False)


def _single(op: Builder, x: ir.Value) -> Pair:
    """What any of these says about a 0-d tensor."""
    return op.Identity(x), op.Identity(op.const(0))


@lowering(aten.sort.default)
def sort(op: Builder, x: ir.Value, dim: int = -1, descending: bool = False) -> Pair:
    """sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)"""
    if not shape_of(x):
        return _single(op, x)
    places = _ranked(op, x, _length(op, x, dim), dim, descending)
    return op.GatherElements(x, places, axis=dim), places


@lowering(aten.sort.stable)
def sort_stable(
    op: Builder, x: ir.Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Pair:
    """sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor, Tensor)"""
    return sort(op, x, dim, descending)


@lowering(aten.topk.default)
def topk(op: Builder, x: ir.Value, k: Dim, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    """topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)

    Of equal elements those that stand first; torch makes no promise.
    """
    if not shape_of(x):
        return _single(op, x)
    places = _ranked(op, x, op.dims([k]), dim, largest)
    return op.GatherElements(x, places, axis=dim), places


@lowering(aten.kthvalue.default)
def kthvalue(op: Builder, x: ir.Value, k: Dim, dim: int = -1, keepdim: bool = False) -> Pair:
    """kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)"""
    if not shape_of(x):
        return _single(op, x)
    return picked(op, x, _last(op, _ranked(op, x, op.dims([k]), dim, largest=False), dim), dim, keepdim)


def _last(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    return op.Slice(x, [-1], [2**63 - 1], [dim])


@lowering(aten.median.dim)
def median_dim(op: Builder, x: ir.Value, dim: int, keepdim: bool = False) -> Pair:
    """median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"""
    return picked(op, x, _median(op, x, dim), dim, keepdim) if shape_of(x) else _single(op, x)


@lowering(aten.median.default)
def median(op: Builder, x: ir.Value) -> ir.Value:
    """median(Tensor self) -> Tensor"""
    return _of_all(op, x, _median)


def _of_all(op: Builder, x: ir.Value, place_of: Callable[[Builder, ir.Value, int], ir.Value]) -> ir.Value:
    """The element of the flat tensor at the place that is found for it; NaN of none."""
    if is_empty(x):
        return op.Identity(op.const(math.nan, op.result.dtype))
    flat = op.Reshape(x, [-1])
    return op.Squeeze(op.Gather(flat, place_of(op, flat, 0), axis=0), [0])


def _median(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    """Where the lower of the two in the middle stands, or the first NaN."""
    places = _ranked(op, x, _middle(op, x, dim), dim, largest=False)
    place = _last(op, places, dim)
    if not is_floating(x):
        return place
    flags = op.cast(op.IsNaN(x), torch.int32)
    has_nan = op.cast(op.ReduceMax(flags, [dim], keepdims=1), torch.bool)
    return op.Where(has_nan, op.ArgMax(flags, axis=dim, keepdims=1), place)


def _middle(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    """How many elements reach to the lower one in the middle."""
    return op.Div(op.Add(_length(op, x, dim), 1), 2)


@lowering(aten.nanmedian.dim)
def nanmedian_dim(op: Builder, x: ir.Value, dim: int, keepdim: bool = False) -> Pair:
    """nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"""
    return picked(op, x, _nanmedian(op, x, dim), dim, keepdim) if shape_of(x) else _single(op, x)


@lowering(aten.nanmedian.default)
def nanmedian(op: Builder, x: ir.Value) -> ir.Value:
    """nanmedian(Tensor self) -> Tensor"""
    return _of_all(op, x, _nanmedian)


def _nanmedian(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    """The median of what stands in front of the NaNs once all is sorted."""
    if not is_floating(x):
        return _median(op, x, dim)
    places = _ranked(op, x, _length(op, x, dim), dim, largest=False)
    counts = op.ReduceSum(op.cast(op.Not(op.IsNaN(x)), torch.int64), [dim], keepdims=1)
    middle = op.Div(op.Max(op.Sub(counts, 1), 0), 2)
    return op.GatherElements(places, middle, axis=dim)


@lowering(aten.mode.default)
def mode(op: Builder, x: ir.Value, dim: int = -1, keepdim: bool = False) -> Pair:
    """mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)

    The smallest of the most frequent elements, at the last place where it stands. Sorted, equal elements form runs;
    they are numbered, and counted by number.
    """
    if not shape_of(x):
        return _single(op, x)
    places = _ranked(op, x, _length(op, x, dim), dim, largest=False)
    ordered = op.GatherElements(x, places, axis=dim)
    before, after = op.Slice(ordered, [0], [-1], [dim]), op.Slice(ordered, [1], [2**63 - 1], [dim])
    begins = op.cast(op.Not(op.Equal(before, after)), torch.int64)
    first = op.Expand(op.const(0), op.Shape(op.Slice(ordered, [0], [1], [dim])))
    runs = op.CumSum(op.Concat(first, begins, axis=dim), op.const(dim))
    zeros = op.Expand(op.const(0), op.Shape(runs))
    counts = op.ScatterElements(zeros, runs, op.Expand(op.const(1), op.Shape(runs)), axis=dim, reduction="add")
    longest = op.ArgMax(counts, axis=dim, keepdims=1)
    up_to_it = op.ReduceSum(op.cast(op.LessOrEqual(runs, longest), torch.int64), [dim], keepdims=1)
    return picked(op, x, op.GatherElements(places, op.Sub(up_to_it, 1), axis=dim), dim, keepdim)
