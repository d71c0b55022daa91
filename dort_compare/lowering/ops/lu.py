"""Gauss's elimination with row exchanges (LAPACK's getrf), column by column, and what is solved with it.

Crout's order: a column of L and a row of U are differences of the matrix and products of what is already known.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.loops import loop
from dort_compare.lowering.ops.matrices import (
    Matrices,
    column,
    diagonal,
    identity,
    numbers,
    triangle,
    upright,
)
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import minus, smaller
from dort_compare.lowering.values import Dim

aten = torch.ops.aten


@dataclass(frozen=True)
class Factors:
    """A[order] = (I + L) U; step i exchanged the rows i and ``pivots``[i], counted from 0."""

    lower: Matrices
    upper: Matrices
    order: ir.Value
    pivots: ir.Value

    def packed(self, op: Builder) -> Matrices:
        """L and U in one matrix."""
        rows, columns = self.lower.rows, self.upper.columns
        behind, below = minus(op, columns, self.lower.columns), minus(op, rows, self.upper.rows)
        both = op.Add(_padded(op, self.lower, 0, behind), _padded(op, self.upper, below, 0))
        return Matrices(both, self.lower.batch, rows, columns)

    def pivots_from_1(self, op: Builder) -> ir.Value:
        return op.cast(op.Add(self.pivots, 1), torch.int32)

    def info(self, op: Builder) -> ir.Value:
        """LAPACK's info: which element of U's diagonal is the first zero, counted from 1; 0 if none is."""
        if self.upper.is_empty:
            return op.Expand(op.const(0, torch.int32), op.dims(self.upper.batch))
        is_zero = op.cast(op.Equal(diagonal(op, self.upper), 0), torch.int64)
        first = op.ArgMax(is_zero, axis=-1, keepdims=0)
        return op.cast(op.Mul(op.Add(first, 1), op.ReduceMax(is_zero, [-1], keepdims=0)), torch.int32)


def _padded(op: Builder, x: Matrices, rows: Dim, columns: Dim) -> ir.Value:
    if rows == 0 and columns == 0:
        return x.value
    rank = len(x.batch) + 2
    return op.Pad(x.value, op.dims([0] * (2 * rank - 2) + [rows, columns]))


def _factored(op: Builder, a: Matrices) -> Factors:
    """The pivot is the first of the largest in its column; one that is zero divides nothing.

    As in LAPACK, NaN is never larger, and nothing is larger than a NaN that stands where the pivot belongs. L keeps
    the order of A's rows until all pivots are known, ``waits`` tells which rows have not been chosen.
    """
    m, n, k = a.rows, a.columns, smaller(op, a.rows, a.columns)
    rows, columns, steps = (numbers(op, size) for size in (m, n, k))

    def body(
        i: ir.Value, lower: ir.Value, upper: ir.Value, order: ir.Value, waits: ir.Value, pivots: ir.Value
    ) -> list[ir.Value]:
        rest = op.Sub(column(op, a.value, i), op.MatMul(lower, column(op, upper, i)))
        size = op.GatherElements(op.Squeeze(op.Abs(rest), [-1]), order, axis=-1)
        unordered = op.Where(op.Equal(rows, i), op.const(torch.inf, a.dtype), op.const(-0.5, a.dtype))
        size = op.Where(op.IsNaN(size), unordered, size)
        place = op.ArgMax(op.Where(op.GreaterOrEqual(rows, i), size, -1), axis=-1)
        chosen = upright(op, op.GatherElements(order, place, axis=-1))
        order = _exchanged(op, order, rows, i, place)
        waits = op.And(waits, op.Not(op.Equal(upright(op, rows), chosen)))

        pivot = op.GatherElements(rest, chosen, axis=-2)
        across = op.GatherElements(a.value, op.Expand(chosen, op.dims([*a.batch, 1, n])), axis=-2)
        known = op.GatherElements(lower, op.Expand(chosen, op.dims([*a.batch, 1, k])), axis=-2)
        across = op.Where(op.Greater(columns, i), op.Sub(across, op.MatMul(known, upper)), 0)
        across = op.Where(op.Equal(columns, i), pivot, across)
        down = op.Div(rest, op.Where(op.Equal(pivot, 0), 1, pivot))
        lower = op.Where(op.And(waits, op.Equal(steps, i)), down, lower)
        upper = op.Where(op.Equal(upright(op, steps), i), across, upper)
        return [lower, upper, order, waits, op.Where(op.Equal(steps, i), place, pivots)]

    state = [
        a.filled(op, 0, m, k),
        a.filled(op, 0, k, n),
        op.Expand(rows, op.dims([*a.batch, m])),
        op.Expand(op.const(True, torch.bool), op.dims([*a.batch, m, 1])),
        op.Expand(op.const(0), op.dims([*a.batch, k])),
    ]
    lower, upper, order, _, pivots = loop(op, k, state, body)
    lower = reordered(op, Matrices(lower, a.batch, m, k), order)
    return Factors(Matrices(lower, a.batch, m, k), Matrices(upper, a.batch, k, n), order, pivots)


def reordered(op: Builder, x: Matrices, order: ir.Value) -> ir.Value:
    """The rows of ``x`` in another order."""
    return op.GatherElements(x.value, op.Expand(upright(op, order), op.dims([*x.batch, x.rows, x.columns])), axis=-2)


def _exchanged(op: Builder, order: ir.Value, places: ir.Value, i: ir.Value, place: ir.Value) -> ir.Value:
    here, there = column(op, order, i), op.GatherElements(order, place, axis=-1)
    return op.Where(op.Equal(places, i), there, op.Where(op.Equal(places, place), here, order))


def order_after(op: Builder, pivots: ir.Value, batch: tuple[Dim, ...], m: Dim, k: Dim) -> ir.Value:
    """The order that row exchanges bring m rows into; ``pivots`` as LAPACK counts them, from 1."""
    rows = numbers(op, m)
    places = op.Sub(op.cast(pivots, torch.int64), 1)

    def body(i: ir.Value, order: ir.Value) -> list[ir.Value]:
        return [_exchanged(op, order, rows, i, column(op, places, i))]

    (order,) = loop(op, k, [op.Expand(rows, op.dims([*batch, m]))], body)
    return order


def _permutation(op: Builder, order: ir.Value, m: Dim, dtype: torch.dtype) -> ir.Value:
    """P of A = P L U."""
    return op.cast(op.Equal(upright(op, numbers(op, m)), op.Unsqueeze(order, [-2])), dtype)


def _factors_of_nothing(op: Builder, a: Matrices) -> Factors:
    """The factors of matrices without elements."""
    m, n, k = a.rows, a.columns, smaller(op, a.rows, a.columns)
    order = op.Expand(numbers(op, m), op.dims([*a.batch, m]))
    pivots = op.Expand(op.const(0), op.dims([*a.batch, k]))
    lower, upper = (Matrices(a.filled(op, 0, *sizes), a.batch, *sizes) for sizes in ((m, k), (k, n)))
    return Factors(lower, upper, order, pivots)


def refuse_what_raises(op: Builder, pivot: bool, check_errors: bool) -> None:
    """Refuses what torch has on CUDA alone, and errors that depend on values."""
    if not pivot:
        raise op.unsupported("a factorization without pivoting")
    if check_errors:
        raise op.unsupported("an error for what is singular")


def factors_of(op: Builder, a: Matrices) -> Factors:
    """The factors of every matrix."""
    return _factors_of_nothing(op, a) if a.is_empty else _factored(op, a)


@lowering(aten.linalg_lu_factor_ex.default)
def linalg_lu_factor_ex(
    op: Builder, x: ir.Value, *, pivot: bool = True, check_errors: bool = False
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False)
    -> (Tensor LU, Tensor pivots, Tensor info)
    """
    refuse_what_raises(op, pivot, check_errors)
    a = Matrices.of(op, x)
    factors = factors_of(op, a)
    return factors.packed(op).value, factors.pivots_from_1(op), factors.info(op)


@lowering(aten.linalg_lu.default)
def linalg_lu(op: Builder, x: ir.Value, *, pivot: bool = True) -> tuple[ir.Value, ir.Value, ir.Value]:
    """linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)"""
    refuse_what_raises(op, pivot, check_errors=False)
    a = Matrices.of(op, x)
    factors = factors_of(op, a)
    unit = identity(op, factors.lower.rows, factors.lower.columns, a.dtype)
    permutation = _permutation(op, factors.order, a.rows, a.dtype)
    return permutation, op.Add(factors.lower.value, unit), factors.upper.value


@lowering(aten.lu_unpack.default)
def lu_unpack(
    op: Builder, lu: ir.Value, pivots: ir.Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True)
    -> (Tensor P, Tensor L, Tensor U)
    """
    both = Matrices.of(op, lu)
    k = smaller(op, both.rows, both.columns)
    permutation = nothing = op.const([], both.dtype)
    if unpack_pivots:
        order = order_after(op, pivots, both.batch, both.rows, k)
        permutation = _permutation(op, order, both.rows, both.dtype)
    if not unpack_data:
        return permutation, nothing, nothing
    left = op.Slice(triangle(op, lu, False, -1), [0], op.dims([k]), [-1])
    upper = op.Slice(triangle(op, lu, True), [0], op.dims([k]), [-2])
    return permutation, op.Add(left, identity(op, both.rows, k, both.dtype)), upper
