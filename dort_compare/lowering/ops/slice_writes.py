"""A slice or an element of one dimension replaced."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import from_front, larger, plus, smaller
from dort_compare.lowering.values import Dim, is_empty, shape_of

aten = torch.ops.aten
_END = 2**63 - 1


@lowering(aten.select_scatter.default)
def select_scatter(op: Builder, x: ir.Value, src: ir.Value, dim: int, index: Dim) -> ir.Value:
    """select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor"""
    size = shape_of(x)[dim]
    dim %= len(shape_of(x))
    slab = op.Unsqueeze(op.cast(src, op.result.dtype), [dim])
    if isinstance(size, int) and isinstance(index, int):
        return _between(op, x, slab, dim, index % size, 1)
    if isinstance(index, int) and index < 0:
        behind = [op.Slice(x, [index + 1], [_END], [dim])] if index < -1 else []
        return op.Concat(op.Slice(x, [0], [index], [dim]), slab, *behind, axis=dim)
    return _between(op, x, slab, dim, index, 1)


@lowering(aten.slice_scatter.default)
def slice_scatter(
    op: Builder,
    x: ir.Value,
    src: ir.Value,
    dim: int = 0,
    start: Dim | None = None,
    end: Dim | None = None,
    step: int = 1,
) -> ir.Value:
    """slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) ..."""
    dim %= len(shape_of(x))
    size, length = shape_of(x)[dim], op.size(src, dim)
    src = op.cast(src, op.result.dtype)
    if is_empty(src):
        return x
    if isinstance(size, int) and isinstance(start, int | None) and isinstance(end, int | None):
        first, last, _ = slice(start, end, step).indices(size)
        return (
            _every(op, x, src, dim, range(first, last, step)) if step > 1 else _between(op, x, src, dim, first, length)
        )
    if step != 1:
        raise op.unsupported("a slice with a step of a symbolic size")
    return _between(op, x, src, dim, 0 if start is None else start, length)


def _between(op: Builder, x: ir.Value, src: ir.Value, dim: int, first: Dim, length: Dim) -> ir.Value:
    """``x`` before ``first``, which counts from the end where it is negative, ``src``, and ``x`` behind them."""
    size = shape_of(x)[dim]
    if not isinstance(first, int) or first < 0:
        have = op.size(x, dim)
        first = smaller(op, larger(op, from_front(op, first, have), 0), have)
    rest = plus(op, first, length)
    parts = [src]
    if not (isinstance(first, int) and first == 0):
        parts.insert(0, op.Slice(x, [0], op.dims([first]), [dim]))
    if not (isinstance(rest, int) and rest == size):
        parts.append(op.Slice(x, op.dims([rest]), [_END], [dim]))
    return op.Concat(*parts, axis=dim) if len(parts) > 1 else src


def _every(op: Builder, x: ir.Value, src: ir.Value, dim: int, places: range) -> ir.Value:
    ones = [1] * (len(shape_of(x)) - dim - 1)
    targets = op.Expand(op.Reshape(op.const(list(places)), op.const([-1, *ones])), op.Shape(src))
    return op.ScatterElements(x, targets, src, axis=dim)
