"""What the factorizations share: batches of matrices with their sizes, known or symbolic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.values import Dim, dtype_of, shape_of


@dataclass(frozen=True)
class Matrices:
    """``value`` holds matrices of ``rows`` by ``columns`` in its last two dimensions, ``batch`` are the others."""

    value: ir.Value
    batch: tuple[Dim, ...]
    rows: Dim
    columns: Dim

    @classmethod
    def of(cls, op: Builder, x: ir.Value) -> Matrices:
        """The value of an FX node."""
        *batch, rows, columns = (op.size(x, dim) for dim in range(len(shape_of(x))))
        return cls(x, tuple(batch), rows, columns)

    @property
    def is_empty(self) -> bool:
        """Whether it holds no element, as far as the sizes are known."""
        return 0 in (*self.batch, self.rows, self.columns)

    @property
    def dtype(self) -> torch.dtype:
        return dtype_of(self.value)

    def holding(self, value: ir.Value) -> Matrices:
        """``value``, which has the same sizes."""
        return Matrices(value, self.batch, self.rows, self.columns)

    def turned(self, op: Builder) -> Matrices:
        """Every matrix transposed."""
        return Matrices(turned(op, self.value, len(self.batch) + 2), self.batch, self.columns, self.rows)

    def filled(self, op: Builder, number: float, *sizes: Dim) -> ir.Value:
        """``number`` everywhere, in this batch, of other sizes behind it."""
        return op.Expand(op.const(number, self.dtype), op.dims([*self.batch, *sizes]))

    def in_batch(self, op: Builder, batch: Sequence[Dim]) -> Matrices:
        """Expanded to a batch."""
        sizes = op.dims([*batch, self.rows, self.columns])
        value = self.value if tuple(batch) == self.batch else op.Expand(self.value, sizes)
        return Matrices(value, tuple(batch), self.rows, self.columns)


def sizes_of(op: Builder, operands: Sequence[ir.Value], result: torch.Tensor) -> list[Dim]:
    """The sizes of a result whose batch the operands' batches are broadcast to, without its two last ones.

    A symbolic size is read off an operand that has it.
    """
    sizes: list[Dim] = []
    for from_end in range(result.ndim, 2, -1):
        size = result.shape[-from_end]
        if isinstance(size, int):
            sizes.append(size)
            continue
        holders = (x for x in operands if from_end <= len(shape_of(x)) and str(shape_of(x)[-from_end]) == str(size))
        holder = next(holders, None)
        if holder is None:
            raise op.unsupported("batches of symbolic sizes that differ")
        sizes.append(op.size(holder, -from_end))
    return sizes


def turned(op: Builder, x: ir.Value, rank: int) -> ir.Value:
    """Every matrix transposed."""
    return op.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


def numbers(op: Builder, count: Dim) -> ir.Value:
    """0, 1, ..., count - 1."""
    return op.const(list(range(count))) if isinstance(count, int) else op.Range(0, count, 1)


def upright(op: Builder, x: ir.Value) -> ir.Value:
    """A vector, or each of a batch, as a matrix of one column."""
    return op.Unsqueeze(x, [-1])


def row(op: Builder, x: ir.Value, index: ir.Value) -> ir.Value:
    """One row of every matrix, as a matrix."""
    return op.Gather(x, op.Reshape(index, [1]), axis=-2)


def column(op: Builder, x: ir.Value, index: ir.Value) -> ir.Value:
    """One column of every matrix as a matrix, or one element of every vector."""
    return op.Gather(x, op.Reshape(index, [1]), axis=-1)


def triangle(op: Builder, x: ir.Value, upper: bool, offset: Dim = 0) -> ir.Value:
    """The upper or lower triangle, from a diagonal on, zero elsewhere; ONNX Runtime fails on CUDA where it is empty."""
    return x if x.shape is not None and 0 in list(x.shape) else op.Trilu(x, op.const(offset), upper=int(upper))


def diagonal(op: Builder, x: Matrices) -> ir.Value:
    """The diagonal of matrices that are not taller than wide."""
    is_on_it = op.Equal(upright(op, numbers(op, x.rows)), numbers(op, x.columns))
    return op.ReduceSum(op.Where(is_on_it, x.value, 0), [-1], keepdims=0)


def identity(op: Builder, rows: Dim, columns: Dim, dtype: torch.dtype) -> ir.Value:
    """Ones on the diagonal."""
    return op.cast(op.Equal(upright(op, numbers(op, rows)), numbers(op, columns)), dtype)
