"""Running sums, products and extremes.

For all but the sum ONNX has no operator: after the step of width w each element is joined with what stands w before it,
w = 1, 2, 4, ..., which takes log2(n) steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.reduction import widened
from dort_compare.lowering.precision import in_float32
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sums import running_sum
from dort_compare.lowering.values import is_floating, shape_of

aten = torch.ops.aten
Parts = tuple[ir.Value, ...]
_END = 2**63 - 1


@lowering(aten.cumsum.default)
@in_float32
def cumsum(op: Builder, x: ir.Value, dim: int, **_: Any) -> ir.Value:
    """cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor"""
    terms = widened(op, x)
    return running_sum(op, terms, dim % op.result.ndim) if op.result.ndim else terms


def _scan(
    op: Builder, parts: Parts, dim: int, size: int | torch.SymInt, join: Callable[[Parts, Parts], Parts]
) -> Parts:
    """``join(before, here)`` is associative; a running value may consist of several tensors."""
    if not isinstance(size, int):
        raise op.unsupported("a running product or extreme along a symbolic size")
    width = 1
    while width < size:
        before = tuple(op.Slice(part, [0], [-width], [dim]) for part in parts)
        here = tuple(op.Slice(part, [width], [_END], [dim]) for part in parts)
        first = tuple(op.Slice(part, [0], [width], [dim]) for part in parts)
        parts = tuple(op.Concat(*pair, axis=dim) for pair in zip(first, join(before, here), strict=True))
        width *= 2
    return parts


def _size(x: ir.Value, dim: int) -> int | torch.SymInt:
    shape = shape_of(x)
    return shape[dim] if shape else 1


@lowering(aten.cumprod.default)
def cumprod(op: Builder, x: ir.Value, dim: int, **_: Any) -> ir.Value:
    """cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor

    In float64, as torch's kernel on CPU: there a product of elements in between hardly overflows.
    """
    dtype = op.result.dtype
    factors = op.cast(x, torch.float64) if dtype.is_floating_point else widened(op, x)
    (product,) = _scan(op, (factors,), dim, _size(x, dim), lambda a, b: (op.Mul(a[0], b[0]),))
    return op.cast(product, dtype)


@lowering(aten.logcumsumexp.default)
def logcumsumexp(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    """logcumsumexp(Tensor self, int dim) -> Tensor

    Joined by max(a, b) + log(1 + exp(-|a - b|)) in float64, as in torch's kernel on CPU.
    """

    def join(before: Parts, here: Parts) -> Parts:
        a, b = before[0], here[0]
        distance = op.Where(op.Equal(a, b), op.const(0, torch.float64), op.Abs(op.Sub(a, b)))
        return (op.Add(op.Max(a, b), op.Log(op.Add(op.Exp(op.Neg(distance)), 1))),)

    (running,) = _scan(op, (op.cast(x, torch.float64),), dim, _size(x, dim), join)
    return op.cast(running, op.result.dtype)


@lowering(aten.cummax.default)
def cummax(op: Builder, x: ir.Value, dim: int) -> tuple[ir.Value, ir.Value]:
    """cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)"""
    return _running_extreme(op, "GreaterOrEqual", x, dim)


@lowering(aten.cummin.default)
def cummin(op: Builder, x: ir.Value, dim: int) -> tuple[ir.Value, ir.Value]:
    """cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)"""
    return _running_extreme(op, "LessOrEqual", x, dim)


def _running_extreme(op: Builder, comparison: str, x: ir.Value, dim: int) -> tuple[ir.Value, ir.Value]:
    """Of equal elements, and of NaNs, the last one counts."""
    if not shape_of(x):
        return op.Identity(x), op.Identity(op.const(0))

    def join(before: Parts, here: Parts) -> Parts:
        takes_over = getattr(op, comparison)(here[0], before[0])
        if is_floating(here[0]):
            takes_over = op.Or(takes_over, op.IsNaN(here[0]))
        return tuple(op.Where(takes_over, new, old) for new, old in zip(here, before, strict=True))

    values = op.cast(x, torch.int64) if x.dtype in (ir.DataType.BOOL, ir.DataType.INT16) else x
    places = op.Sub(op.CumSum(op.Expand(op.const(1), op.Shape(x)), op.const(dim)), 1)
    values, places = _scan(op, (values, places), dim, _size(x, dim), join)
    return op.cast(values, op.result_dtype), places
