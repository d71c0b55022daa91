"""Counts: of integers, and of numbers that fall into bins."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import Dim, dtype_of, is_empty

aten = torch.ops.aten


def counted(op: Builder, x: ir.Value, size: Dim, weights: ir.Value | None = None) -> ir.Value:
    """How often each of 0, 1, ..., size - 1 stands in a vector, or the sum of its weights; others are out of range."""
    terms = op.Expand(op.const(1), op.Shape(x)) if weights is None else weights
    zeros = op.Expand(op.const(0, dtype_of(terms)), op.dims([size]))
    return op.ScatterElements(zeros, x, terms, axis=0, reduction="add")


@lowering(aten.bincount.default)
def bincount(op: Builder, x: ir.Value, weights: ir.Value | None = None, minlength: Dim = 0) -> ir.Value:
    """bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor

    A negative number, for which torch raises, is sent behind the last bin, where ONNX Runtime raises. Torch 2.11 traces
    integers where weights are counted.
    """
    if op.result.dtype != _dtype_of_sums(weights):
        raise op.unsupported(f"sums of weights that torch traces as {op.result.dtype}")
    wide = op.cast(x, torch.int64)
    largest = op.ReduceMax(op.Concat(wide, op.const([-1]), axis=0), keepdims=0)
    size = op.Max(op.Add(largest, 1), op.const(minlength))
    places = op.Where(op.Less(wide, 0), size, wide)
    return counted(op, places, size, weights and op.cast(weights, op.result.dtype))


def _dtype_of_sums(weights: ir.Value | None) -> torch.dtype:
    """As in ATen/native/SummaryOps.cpp: weights are added in float64 unless they are float32."""
    if weights is None:
        return torch.int64
    return torch.float32 if dtype_of(weights) == torch.float32 else torch.float64


@lowering(aten.histc.default)
def histc(op: Builder, x: ir.Value, bins: int = 100, min: float | int = 0, max: float | int = 0) -> ir.Value:
    """histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor

    The number of the bin as in ATen/native/cpu/HistogramKernel.cpp: (x - left) * bins / (right - left), rounded down;
    the first where that overflows.
    """
    dtype = op.result.dtype
    if is_empty(x):
        return op.Expand(op.const(0, dtype), [bins])
    if isinstance(min, ir.Value) or isinstance(max, ir.Value):
        raise op.unsupported("a range of symbolic numbers")
    if not (min <= max and math.isfinite(min) and math.isfinite(max)):
        raise op.unsupported("a range that torch refuses")
    flat = op.Reshape(x, [-1])
    left, right = _range(op, flat, min, max)
    place = op.Div(op.Mul(op.Sub(flat, left), op.const(bins, dtype)), op.Sub(right, left))
    place = op.Max(op.Min(op.cast(place, torch.int64), bins - 1), 0)
    if min == max:  # all elements lie within; for one that is not finite torch raises, as ONNX Runtime for its place
        is_finite = op.Not(op.Or(op.IsNaN(flat), op.IsInf(flat)))
        return op.cast(counted(op, op.Where(is_finite, place, bins), bins), dtype)
    is_inside = op.And(op.GreaterOrEqual(flat, left), op.LessOrEqual(flat, right))
    place = op.Where(is_inside, place, 0)
    return op.cast(counted(op, place, bins, op.cast(is_inside, torch.int64)), dtype)


def _range(op: Builder, x: ir.Value, low: float, high: float) -> tuple[ir.Value, ir.Value]:
    """The bounds given or, where they are equal, those of the data; one value becomes the middle of a range of 2."""
    dtype = op.result.dtype
    if low < high:
        return op.const(low, dtype), op.const(high, dtype)
    smallest, largest = op.ReduceMin(x, keepdims=0), op.ReduceMax(x, keepdims=0)
    margin = op.cast(op.Equal(smallest, largest), dtype)
    return op.Sub(smallest, margin), op.Add(largest, margin)
