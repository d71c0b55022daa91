"""Diagonals: every (columns + 1)-th element of a flattened matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
import torch

from dort_compare.layouts import inverse
from dort_compare.lowering.builder import Builder
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import Dim, is_empty, shape_of

aten = torch.ops.aten


@dataclass(frozen=True)
class _Diagonal:
    """One diagonal of matrices.

    ``order`` puts the matrices behind the other dimensions, ``sizes`` are the sizes in that order. Of the ``count``
    elements of a flat matrix it holds ``length``, from ``start`` on, ``step`` apart.
    """

    order: list[int]
    sizes: list[Dim]
    count: int
    start: int
    step: int
    length: int

    @classmethod
    def of(cls, op: Builder, sizes: Sequence[Dim], offset: int, dim1: int, dim2: int) -> _Diagonal:
        rank = len(sizes)
        dim1, dim2 = dim1 % rank, dim2 % rank
        order = [d for d in range(rank) if d not in (dim1, dim2)] + [dim1, dim2]
        rows, columns = sizes[dim1], sizes[dim2]
        if not (isinstance(rows, int) and isinstance(columns, int)):
            raise op.unsupported("the diagonal of a matrix of symbolic size")
        start = offset if offset >= 0 else -offset * columns
        length = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
        return cls(order, [sizes[d] for d in order], rows * columns, start, columns + 1, length)

    def flat(self, op: Builder, x: ir.Value) -> ir.Value:
        """``x`` with its matrices flattened behind the other dimensions."""
        front = x if self.order == sorted(self.order) else op.Transpose(x, perm=self.order)
        return op.Reshape(front, op.dims([*self.sizes[:-2], self.count]), allowzero=1)

    def read(self, op: Builder, x: ir.Value) -> ir.Value:
        end = self.start + (self.length - 1) * self.step + 1 if self.length else self.start
        return op.Slice(self.flat(op, x), [self.start], [end], [-1], [self.step])

    def write(self, op: Builder, x: ir.Value, src: ir.Value) -> ir.Value:
        """``x`` with ``src`` on the diagonal."""
        if not self.length:
            return x
        places = op.const([self.start + i * self.step for i in range(self.length)])
        written = op.ScatterElements(self.flat(op, x), op.Expand(places, op.Shape(src)), src, axis=-1)
        matrices = op.Reshape(written, op.dims(self.sizes), allowzero=1)
        if self.order == sorted(self.order):
            return matrices
        return op.Transpose(matrices, perm=[*inverse(self.order)])


def _sizes(op: Builder, x: ir.Value) -> list[Dim]:
    return [op.size(x, d) for d in range(len(shape_of(x)))]


@lowering(aten.diagonal.default, aten.diagonal_copy.default)
def diagonal(op: Builder, x: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> ir.Value:
    """diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)"""
    return _Diagonal.of(op, _sizes(op, x), offset, dim1, dim2).read(op, x)


@lowering(aten.diagonal_scatter.default)
def diagonal_scatter(
    op: Builder, x: ir.Value, src: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> ir.Value:
    """diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor"""
    if is_empty(x):
        return x
    src = op.cast(src, op.result.dtype)
    return _Diagonal.of(op, _sizes(op, x), offset, dim1, dim2).write(op, x, src)


@lowering(aten.diagonal_backward.default)
def diagonal_backward(
    op: Builder, grad: ir.Value, input_sizes: Sequence[Dim], offset: int, dim1: int, dim2: int
) -> ir.Value:
    """diagonal_backward(Tensor grad_output, SymInt[] input_sizes, int offset, int dim1, int dim2) -> Tensor"""
    zeros = op.Expand(op.const(0, op.result.dtype), op.dims(input_sizes))
    if is_empty(grad):
        return zeros
    return _Diagonal.of(op, input_sizes, offset, dim1, dim2).write(op, zeros, grad)


@lowering(aten.diag_embed.default)
def diag_embed(op: Builder, x: ir.Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> ir.Value:
    """diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor"""
    *others, length = _sizes(op, x)
    if not isinstance(length, int):
        raise op.unsupported("the diagonal of a matrix of symbolic size")
    sizes = list(others)
    for dim in sorted((dim1 % op.result.ndim, dim2 % op.result.ndim)):
        sizes.insert(dim, length + abs(offset))
    zeros = op.Expand(op.const(0, op.result.dtype), op.dims(sizes))
    return zeros if is_empty(x) else _Diagonal.of(op, sizes, offset, dim1, dim2).write(op, zeros, x)
