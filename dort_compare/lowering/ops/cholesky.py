"""Cholesky's factor of a positive definite matrix, column by column, and what is solved with it."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.loops import loop
from dort_compare.lowering.ops.matrices import (
    Matrices,
    column,
    identity,
    numbers,
    row,
    sizes_of,
    turned,
    upright,
)
from dort_compare.lowering.ops.triangular import solved
from dort_compare.lowering.registry import lowering, lowering_by_name
from dort_compare.lowering.values import is_empty, shape_of

aten = torch.ops.aten


def _factored(op: Builder, a: Matrices) -> tuple[ir.Value, ir.Value]:
    """L of A = L L', of which the lower triangle is read, and the first leading minor that is not positive, or 0.

    Where one is not, L is what LAPACK's potrf leaves of a small matrix: the element that has no root as it was found,
    and from there on A itself. In what it leaves of a large one, a block has been worked on further.
    """
    n = a.rows
    across = numbers(op, n)
    down = upright(op, across)
    rank = len(a.batch) + 2

    def body(i: ir.Value, factor: ir.Value, info: ir.Value) -> list[ir.Value]:
        given = column(op, a.value, i)
        rest = op.Sub(given, op.MatMul(factor, turned(op, row(op, factor, i), rank)))
        square = row(op, rest, i)
        ends = op.And(op.Not(op.Greater(square, 0)), op.Equal(info, 0))
        info = op.Where(ends, op.Add(i, 1), info)
        left = op.Where(op.And(ends, op.Equal(down, i)), rest, given)
        root = op.Sqrt(square)
        new = op.Where(op.Equal(down, i), root, op.Div(rest, root))
        new = op.Where(op.Equal(info, 0), new, left)
        new = op.Where(op.GreaterOrEqual(down, i), new, 0)
        return [op.Where(op.Equal(across, i), new, factor), info]

    unset = op.Expand(op.const(0), op.dims([*a.batch, 1, 1]))
    factor, info = loop(op, n, [a.filled(op, 0, n, n), unset], body)
    return factor, op.Squeeze(info, [-2, -1])


def _cholesky(op: Builder, x: ir.Value, upper: bool) -> tuple[ir.Value, ir.Value]:
    a = Matrices.of(op, x)
    if a.is_empty:
        return x, op.Expand(op.const(0), op.dims(a.batch))
    factor, info = _factored(op, a.turned(op) if upper else a)
    return turned(op, factor, len(shape_of(x))) if upper else factor, info


@lowering(aten.linalg_cholesky_ex.default)
def linalg_cholesky_ex(
    op: Builder, x: ir.Value, *, upper: bool = False, check_errors: bool = False
) -> tuple[ir.Value, ir.Value]:
    """linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)"""
    if check_errors:
        raise op.unsupported("an error for what is not positive definite")
    factor, info = _cholesky(op, x, upper)
    return factor, op.cast(info, torch.int32)


@lowering(aten.cholesky_solve.default)
def cholesky_solve(op: Builder, b: ir.Value, factor: ir.Value, upper: bool = False) -> ir.Value:
    """cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor"""
    sides = Matrices.of(op, b).in_batch(op, sizes_of(op, (b, factor), op.result))
    return _solved(op, Matrices.of(op, factor), sides, upper)


def _solved(op: Builder, factor: Matrices, b: Matrices, upper: bool) -> ir.Value:
    """X of L L' X = B, L being the factor, or U' U X = B."""
    lower = factor.turned(op) if upper else factor
    return solved(op, lower.turned(op), solved(op, lower, b, upper=False), upper=True).value


@lowering_by_name("aten::cholesky")
def cholesky(op: Builder, x: ir.Value, upper: bool = False) -> ir.Value:
    """cholesky(Tensor self, bool upper=False) -> Tensor"""
    factor, info = _cholesky(op, x, upper)
    return factor if is_empty(x) else _unless_any(op, op.Greater(info, 0), factor)


@lowering(aten.cholesky_inverse.default)
def cholesky_inverse(op: Builder, x: ir.Value, upper: bool = False) -> ir.Value:
    """cholesky_inverse(Tensor self, bool upper=False) -> Tensor"""
    factor = Matrices.of(op, x)
    if factor.is_empty:
        return x
    unit = identity(op, factor.rows, factor.columns, factor.dtype)
    inverse = _solved(op, factor, factor.holding(op.Expand(unit, op.Shape(x))), upper)
    return _unless_any(op, op.And(op.Equal(x, 0), op.cast(unit, torch.bool)), inverse)


def _unless_any(op: Builder, faults: ir.Value, x: ir.Value) -> ir.Value:
    """``x``; where there is a fault the run ends with an error, as torch's does: it is gathered from a batch of one."""
    if op.result.device.type != "cpu":
        raise op.unsupported("an error for what has no factor, which no provider but the CPU's raises")
    count = op.ReduceMax(op.Reshape(op.cast(faults, torch.int64), [-1]), keepdims=0)
    return op.Gather(op.Unsqueeze(x, [0]), count, axis=0)
