"""Elements written where a tensor of indices says: scatter and its reductions."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.neutral import neutral
from dort_compare.lowering.ops.operands import Number, refusing_negative, same_shape
from dort_compare.lowering.precision import in_float32
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of, is_empty, is_floating, shape_of

aten = torch.ops.aten

_REDUCTIONS = {
    **dict.fromkeys(("add", "sum", "mean"), "add"),
    **dict.fromkeys(("multiply", "prod"), "mul"),
    "amax": "max",
    "amin": "min",
}
"""From torch's names to those of ScatterElements."""
_OF_BOOLEANS = {**_REDUCTIONS, "amax": "add", "amin": "mul"}
"""The same for booleans, of which ONNX Runtime scatters no largest or smallest; their sum is Or, their product And."""


def scattered(op: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduction: str = "none") -> ir.Value:
    """ScatterElements on operands of equal rank, index and src of one shape; a 0-d tensor counts as one element.

    ScatterElements where ScatterND might do: with a reduction that one races in ONNX Runtime (onnxruntime#18048).
    """
    index = op.cast(index, torch.int64)
    if x.shape and index.shape:
        return op.ScatterElements(x, index, src, axis=dim, reduction=reduction)
    vectors = [op.Reshape(each, [-1]) for each in (x, index, src)]
    return op.Reshape(op.ScatterElements(*vectors, axis=0, reduction=reduction), op.Shape(x))


def _like_index(op: Builder, src: ir.Value, index: ir.Value) -> ir.Value:
    """The part of ``src`` that an index of smaller size reads."""
    if not shape_of(index) or same_shape(shape_of(src), shape_of(index)):
        return src
    rank = len(shape_of(index))
    return op.Slice(src, op.const([0] * rank), op.Shape(index), op.const(list(range(rank))))


@lowering(aten.scatter.src)
def scatter_src(op: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> ir.Value:
    """scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor"""
    return x if is_empty(index) else _checked(op, x, dim, index, _like_index(op, src, index))


@lowering(aten.scatter.value)
def scatter_value(op: Builder, x: ir.Value, dim: int, index: ir.Value, value: Number) -> ir.Value:
    """scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor"""
    return x if is_empty(index) else _checked(op, x, dim, index, filled(op, value, x, index))


def _checked(op: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduction: str = "none") -> ir.Value:
    """Elements written, or added, at an index of torch's, which is never negative."""
    return scattered(op, x, dim, refusing_negative(op, index), src, reduction)


def filled(op: Builder, number: Number, x: ir.Value, index: ir.Value) -> ir.Value:
    """A number in the dtype of ``x`` and the shape of ``index``."""
    return op.Expand(op.const(number, dtype_of(x)), op.Shape(index))


@lowering(aten.scatter_add.default)
@in_float32
def scatter_add(op: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> ir.Value:
    """scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor"""
    return _with_reduction(op, x, dim, index, src, "add")


@lowering(aten.scatter.reduce)
@in_float32
def scatter_src_reduce(op: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduce: str) -> ir.Value:
    """scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor"""
    return _with_reduction(op, x, dim, index, src, reduce)


@lowering(aten.scatter.value_reduce)
@in_float32
def scatter_value_reduce(op: Builder, x: ir.Value, dim: int, index: ir.Value, value: Number, reduce: str) -> ir.Value:
    """scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor"""
    if is_empty(index):
        return x
    return _checked(op, x, dim, index, filled(op, value, x, index), _REDUCTIONS[reduce])


def _with_reduction(op: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduce: str) -> ir.Value:
    if is_empty(index):
        return x
    return _checked(op, x, dim, index, _like_index(op, src, index), _REDUCTIONS[reduce])


@lowering(aten.scatter_reduce.two)
@in_float32
def scatter_reduce(
    op: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduce: str, include_self: bool = True
) -> ir.Value:
    """scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) ..."""
    if is_empty(index):
        return x
    return reduced_into(op, x, dim, index, _like_index(op, src, index), reduce, include_self)


def reduced_into(
    op: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduce: str, include_self: bool
) -> ir.Value:
    """What ``x`` holds and what of ``src`` goes there, reduced; without ``include_self`` the latter alone."""
    index = refusing_negative(op, index)
    if not include_self:
        x = scattered(op, x, dim, index, filled(op, neutral(reduce, dtype_of(x)), x, index))
    reductions = _OF_BOOLEANS if dtype_of(x) == torch.bool else _REDUCTIONS
    result = scattered(op, x, dim, index, src, reductions[reduce])
    if reduce == "mean":
        return _divided(op, result, _counts(op, x, dim, index, include_self))
    if reduce in ("amax", "amin") and is_floating(x):
        return _with_nan(op, result, x, dim, index, src)
    return result


def _counts(op: Builder, x: ir.Value, dim: int, index: ir.Value, include_self: bool) -> ir.Value:
    start = op.Expand(op.const(int(include_self), dtype_of(x)), op.Shape(x))
    counts = scattered(op, start, dim, index, filled(op, 1, x, index), "add")
    return counts if include_self else op.Max(counts, 1)


def _divided(op: Builder, total: ir.Value, counts: ir.Value) -> ir.Value:
    """Integers are rounded down, as torch does, where ONNX rounds towards zero."""
    if is_floating(total):
        return op.Div(total, counts)
    return op.Div(op.Sub(total, op.Mod(total, counts)), counts)


def _with_nan(op: Builder, result: ir.Value, x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> ir.Value:
    """NaN wherever one takes part: ONNX Runtime's extremes depend on the order in which they meet it."""
    flags = (op.cast(op.IsNaN(each), torch.uint8) for each in (x, src))
    start, more = flags
    has_nan = scattered(op, start, dim, index, more, "max")
    return op.Where(op.cast(has_nan, torch.bool), op.const(math.nan, dtype_of(x)), result)
