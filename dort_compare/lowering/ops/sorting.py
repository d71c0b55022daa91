"""Sorting and what it answers: the k largest, the k-th smallest, the median, the most frequent."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.extremes import picked
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import floordiv, plus
from dort_compare.lowering.sums import running_sum
from dort_compare.lowering.values import Dim, is_empty, is_floating, shape_of

aten = torch.ops.aten
Pair = tuple[ir.Value, ir.Value]

_LARGEST = torch.finfo(torch.float64).max
_ALMOST_LARGEST = math.nextafter(_LARGEST, 0)
_BOUNDS = (-math.inf, -_LARGEST, _ALMOST_LARGEST, _LARGEST)
"""The largest float64 of each kind, in rising order; above them is infinity, and NaN a kind of its own after that."""
_NAN_KIND = len(_BOUNDS) + 1


def _ranked(op: Builder, x: ir.Value, count: ir.Value, dim: int, largest: bool) -> ir.Value:
    """Where the ``count`` first elements stand along ``dim``, in order; equal ones in theirs, NaN as the largest."""
    if op.on_cuda:
        return _ranked_on_cuda(op, x, count, dim, largest)
    if x.dtype == ir.DataType.DOUBLE:
        return _ranked_in_two_passes(op, x, count, dim, largest)
    return _top(op, _keys(op, x), count, dim, largest)


def _length(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    """The size along ``dim`` as a vector of one."""
    return op.dims([op.own_size(x, dim)])


def _top(op: Builder, keys: ir.Value, count: ir.Value, dim: int, largest: bool) -> ir.Value:
    """On the CPU TopK leaves equal elements in their order."""
    return op.TopK(keys, count, axis=dim, largest=int(largest), sorted=1, _outputs=2)[1]


def _keys(op: Builder, x: ir.Value) -> ir.Value:
    """What orders the elements as torch does, for ONNX Runtime does not order NaN, and on CUDA nothing infinite.

    Narrower floats become float64, infinity 2^200 and NaN 2^201.
    """
    if x.dtype == ir.DataType.BOOL:
        return op.cast(x, torch.uint8)
    if not is_floating(x):
        return x
    finite = op.Clip(op.cast(x, torch.float64), -(2.0**200), 2.0**200)
    return op.Where(op.IsNaN(x), 2.0**201, finite)


def _ranked_in_two_passes(op: Builder, x: ir.Value, count: ir.Value, dim: int, largest: bool) -> ir.Value:
    """By value with NaN as infinity, then by whether it is NaN."""
    everything = _length(op, x, dim)
    is_nan = op.IsNaN(x)
    by_value = _top(op, op.Where(is_nan, op.const(math.inf, torch.float64), x), everything, dim, largest)
    flags = op.GatherElements(op.cast(is_nan, torch.uint8), by_value, axis=dim)
    by_nan = _top(op, flags, count, dim, largest)
    return op.GatherElements(by_value, by_nan, axis=dim)


def _ranked_on_cuda(op: Builder, x: ir.Value, count: ir.Value, dim: int, largest: bool) -> ir.Value:
    """By keys of which no two are equal and none is at an end of its dtype's range.

    ONNX Runtime's CUDA kernel (1.31) fills up a row with an end of that range, and answers with the filling where an
    element is beyond it; and equal elements of a row longer than 256 it leaves in any order.
    """
    if x.dtype == ir.DataType.DOUBLE:
        return _ranked_by_runs(op, x, count, dim, largest)
    if x.dtype == ir.DataType.INT64:
        return _ranked_by_halves(op, x, count, dim, largest)
    return _top(op, _distinct(op, x, dim, largest), count, dim, largest)


def _distinct(op: Builder, x: ir.Value, dim: int, largest: bool) -> ir.Value:
    """Keys that order the elements as torch does, equal ones by their places; of an int64 no more than 2^32 in size.

    An integer is multiplied by the length of the row, so that there is room for the place. Of a float64 that holds 24
    bits of a narrower float the last 28 are free for it.
    """
    place, with_place = _places(op, x, dim), op.Sub if largest else op.Add
    if not is_floating(x):
        return with_place(op.Mul(op.cast(x, torch.int64), _length(op, x, dim)), place)
    keys = _keys(op, x)
    last_bit = op.Where(op.Equal(keys, 0), 2.0**-250, op.Mul(op.Abs(keys), 2.0**-52))
    return with_place(keys, op.Mul(last_bit, op.cast(place, torch.float64)))


def _rank(x: ir.Value) -> int:
    assert x.shape is not None
    return len(x.shape)


def _places(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    """0, 1, ... along ``dim``, of size 1 in the dimensions behind it."""
    behind = range(1, _rank(x) - dim % _rank(x))
    places = op.Range(0, op.own_size(x, dim), 1)
    return op.Unsqueeze(places, list(behind)) if behind else places


def _ranked_by_halves(op: Builder, x: ir.Value, count: ir.Value, dim: int, largest: bool) -> ir.Value:
    """An int64 by its lower 32 bits, then by the upper ones."""
    low = op.Mod(x, 2**32)
    high = op.Div(op.Sub(x, low), 2**32)
    by_low = _top(op, _distinct(op, low, dim, largest), _length(op, x, dim), dim, largest)
    ordered = op.GatherElements(high, by_low, axis=dim)
    return op.GatherElements(by_low, _top(op, _distinct(op, ordered, dim, largest), count, dim, largest), axis=dim)


def _ranked_by_runs(op: Builder, x: ir.Value, count: ir.Value, dim: int, largest: bool) -> ir.Value:
    """A float64 has no bits to spare: sorted by value, then by its kind, the number of its run, and its place."""
    everything = _length(op, x, dim)
    inside = op.Clip(op.Where(op.IsNaN(x), 0, x), -_ALMOST_LARGEST, _ALMOST_LARGEST)
    by_value = _top(op, inside, everything, dim, largest)
    new_run = op.cast(_new_runs(op, op.GatherElements(inside, by_value, axis=dim), dim), torch.float64)
    runs = op.cast(running_sum(op, new_run, dim % _rank(x)), torch.int64)
    kinds = op.GatherElements(_kinds(op, x, largest), by_value, axis=dim)
    keys = op.Add(op.Mul(op.Add(op.Mul(kinds, everything), runs), everything), by_value)
    return op.GatherElements(by_value, _top(op, keys, count, dim, largest=False), axis=dim)


def _kinds(op: Builder, x: ir.Value, largest: bool) -> ir.Value:
    """The number of each element's kind, counted from what comes first."""
    kinds = op.Where(op.IsNaN(x), op.const(_NAN_KIND), op.const(0))
    for bound in _BOUNDS:
        kinds = op.Add(kinds, op.cast(op.Greater(x, bound), torch.int64))
    return op.Sub(op.const(_NAN_KIND), kinds) if largest else kinds


def _new_runs(op: Builder, ordered: ir.Value, dim: int) -> ir.Value:
    """1 where an element is not equal to the one in front of it along ``dim``, 0 elsewhere."""
    before, after = op.Slice(ordered, [0], [-1], [dim]), op.Slice(ordered, [1], [2**63 - 1], [dim])
    first = op.Expand(op.const(0), op.Shape(op.Slice(ordered, [0], [1], [dim])))
    return op.Concat(first, op.cast(op.Not(op.Equal(before, after)), torch.int64), axis=dim)


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
    return op.dims([floordiv(op, plus(op, op.own_size(x, dim), 1), 2)])


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
    runs = op.CumSum(_new_runs(op, ordered, dim), op.const(dim))
    zeros = op.Expand(op.const(0), op.Shape(runs))
    counts = op.ScatterElements(zeros, runs, op.Expand(op.const(1), op.Shape(runs)), axis=dim, reduction="add")
    longest = op.ArgMax(counts, axis=dim, keepdims=1)
    up_to_it = op.ReduceSum(op.cast(op.LessOrEqual(runs, longest), torch.int64), [dim], keepdims=1)
    return picked(op, x, op.GatherElements(places, op.Sub(up_to_it, 1), axis=dim), dim, keepdim)
