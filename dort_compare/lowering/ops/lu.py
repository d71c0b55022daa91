"""Gauss's elimination with row exchanges (LAPACK's getrf), column by column, and what is solved with it.

Crout's order: a column of L and a row of U are differences of the matrix and products of what is already known.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder, Dim, fake_of, shape_of
from dort_compare.lowering.loops import loop
from dort_compare.lowering.ops.matrices import (
    Matrices,
    column,
    diagonal,
    identity,
    numbers,
    sizes_of,
    triangle,
    upright,
)
from dort_compare.lowering.ops.triangular import solved
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import minus, smaller

aten = torch.ops.aten


@dataclass(frozen=True)
class _Factors:
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
        """Which element of U's diagonal is the first zero, counted from 1; 0 if none is."""
        is_zero = op.cast(op.Equal(diagonal(op, self.upper), 0), torch.int64)
        first = op.ArgMax(is_zero, axis=-1, keepdims=0)
        return op.cast(op.Mul(op.Add(first, 1), op.ReduceMax(is_zero, op.const([-1]), keepdims=0)), torch.int32)


def _padded(op: Builder, x: Matrices, rows: Dim, columns: Dim) -> ir.Value:
    if rows == 0 and columns == 0:
        return x.value
    rank = len(x.batch) + 2
    return op.Pad(x.value, op.dims([0] * (2 * rank - 2) + [rows, columns]))


def _factored(op: Builder, a: Matrices) -> _Factors:
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
        size = op.Where(op.IsNaN(size), op.Where(op.Equal(rows, i), torch.inf, -0.5), size)
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
    lower = _reordered(op, Matrices(lower, a.batch, m, k), order)
    return _Factors(Matrices(lower, a.batch, m, k), Matrices(upper, a.batch, k, n), order, pivots)


def _reordered(op: Builder, x: Matrices, order: ir.Value) -> ir.Value:
    """The rows of ``x`` in another order."""
    return op.GatherElements(x.value, op.Expand(upright(op, order), op.dims([*x.batch, x.rows, x.columns])), axis=-2)


def _exchanged(op: Builder, order: ir.Value, places: ir.Value, i: ir.Value, place: ir.Value) -> ir.Value:
    here, there = column(op, order, i), op.GatherElements(order, place, axis=-1)
    return op.Where(op.Equal(places, i), there, op.Where(op.Equal(places, place), here, order))


def _order(op: Builder, pivots: ir.Value, batch: tuple[Dim, ...], m: Dim, k: Dim) -> ir.Value:
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


def _none(op: Builder, fake: torch.Tensor) -> ir.Value:
    """A result that is not computed, which torch returns as a tensor of no elements."""
    return op.Expand(op.const(0, fake.dtype), op.const(list(fake.shape)))


def _empty_factors(op: Builder, a: Matrices) -> _Factors:
    """The factors of matrices without elements."""
    m, n, k = a.rows, a.columns, smaller(op, a.rows, a.columns)
    order = op.Expand(numbers(op, m), op.dims([*a.batch, m]))
    pivots = op.Expand(op.const(0), op.dims([*a.batch, k]))
    lower, upper = (Matrices(a.filled(op, 0, *sizes), a.batch, *sizes) for sizes in ((m, k), (k, n)))
    return _Factors(lower, upper, order, pivots)


def _refuse_what_raises(op: Builder, pivot: bool, check_errors: bool) -> None:
    if not pivot:
        raise op.unsupported("a factorization without pivoting")
    if check_errors:
        raise op.unsupported("an error for what is singular")


def _factors(op: Builder, a: Matrices) -> _Factors:
    return _empty_factors(op, a) if a.is_empty else _factored(op, a)


@lowering(aten.linalg_lu_factor_ex.default)
def linalg_lu_factor_ex(
    op: Builder, x: ir.Value, *, pivot: bool = True, check_errors: bool = False
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False)
    -> (Tensor LU, Tensor pivots, Tensor info)
    """
    _refuse_what_raises(op, pivot, check_errors)
    a = Matrices.of(op, x)
    factors = _factors(op, a)
    info = _none(op, op.result[2]) if a.is_empty else factors.info(op)
    return factors.packed(op).value, factors.pivots_from_1(op), info


@lowering(aten.linalg_lu.default)
def linalg_lu(op: Builder, x: ir.Value, *, pivot: bool = True) -> tuple[ir.Value, ir.Value, ir.Value]:
    """linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)"""
    _refuse_what_raises(op, pivot, check_errors=False)
    a = Matrices.of(op, x)
    factors = _factors(op, a)
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
    if unpack_pivots:
        order = _order(op, pivots, both.batch, both.rows, k)
        permutation = _permutation(op, order, both.rows, both.dtype)
    else:
        permutation = _none(op, op.result[0])
    if not unpack_data:
        return permutation, _none(op, op.result[1]), _none(op, op.result[2])
    left = op.Slice(triangle(op, lu, False, -1), [0], op.dims([k]), [-1])
    upper = op.Slice(triangle(op, lu, True), [0], op.dims([k]), [-2])
    return permutation, op.Add(left, identity(op, both.rows, k, both.dtype)), upper


def _solved(op: Builder, lu: Matrices, order: ir.Value, b: Matrices, *, left: bool, adjoint: bool) -> Matrices:
    """X of A X = B or, from the right, of X A = B, which is A' X' = B'; of A' in place of A if ``adjoint``.

    ``lu`` and ``order`` are A's, the batch is B's.
    """
    if b.is_empty:
        return b
    if not left:
        return _solved(op, lu, order, b.turned(op), left=True, adjoint=not adjoint).turned(op)
    if not adjoint:
        exchanged = b.holding(_reordered(op, b, order))
        return solved(op, lu, solved(op, lu, exchanged, upper=False, unit=True), upper=True)
    turned = lu.turned(op)
    found = solved(op, turned, solved(op, turned, b, upper=False), upper=True, unit=True)
    places = op.Expand(upright(op, order), op.dims([*b.batch, b.rows, b.columns]))
    return b.holding(op.ScatterElements(found.value, places, found.value, axis=-2))


@lowering(aten.linalg_lu_solve.default)
def linalg_lu_solve(
    op: Builder, lu: ir.Value, pivots: ir.Value, b: ir.Value, *, left: bool = True, adjoint: bool = False
) -> ir.Value:
    """linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor"""
    factors = Matrices.of(op, lu)
    sides = Matrices.of(op, b).in_batch(op, sizes_of(op, (lu, b), op.result))
    if sides.is_empty:
        return sides.value
    order = _order(op, pivots, factors.batch, factors.rows, factors.rows)
    return _solved(op, factors, order, sides, left=left, adjoint=adjoint).value


@lowering(aten._linalg_solve_ex.default)
def linalg_solve_ex(
    op: Builder, x: ir.Value, b: ir.Value, *, left: bool = True, check_errors: bool = False
) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False)
    -> (Tensor result, Tensor LU, Tensor pivots, Tensor info)

    B holds vectors where it has the shape of A without its last dimension.
    """
    _refuse_what_raises(op, pivot=True, check_errors=check_errors)
    is_vector = len(shape_of(b)) == 1 or list(map(str, shape_of(b))) == list(map(str, shape_of(x)[:-1]))
    a = Matrices.of(op, x)
    result, *_, info = op.result
    sides = _sides(op, x, b, result, is_vector)
    factors = _factors(op, a)
    lu = factors.packed(op)
    found = _solved(op, lu, factors.order, sides, left=left, adjoint=False)
    return (
        op.Squeeze(found.value, [-1]) if is_vector else found.value,
        lu.value,
        factors.pivots_from_1(op),
        _none(op, info) if a.is_empty else factors.info(op),
    )


def _sides(op: Builder, x: ir.Value, b: ir.Value, result: torch.Tensor, is_vector: bool) -> Matrices:
    """B as matrices, in the batch of the result."""
    if not is_vector:
        return Matrices.of(op, b).in_batch(op, sizes_of(op, (x, b), result))
    batch = Matrices.of(op, x).batch
    *own, rows = (op.size(b, dim) for dim in range(len(shape_of(b))))
    return Matrices(upright(op, b), tuple(own), rows, 1).in_batch(op, batch)


@lowering(aten.linalg_inv_ex.default)
def linalg_inv_ex(op: Builder, x: ir.Value, *, check_errors: bool = False) -> tuple[ir.Value, ir.Value]:
    """linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)"""
    _refuse_what_raises(op, pivot=True, check_errors=check_errors)
    a = Matrices.of(op, x)
    if a.is_empty:
        return x, _none(op, op.result[1])
    factors = _factored(op, a)
    unit = a.holding(op.Expand(identity(op, a.rows, a.columns, a.dtype), op.Shape(x)))
    inverse = _solved(op, factors.packed(op), factors.order, unit, left=True, adjoint=False)
    return inverse.value, factors.info(op)


@lowering(aten._linalg_det.default)
def linalg_det(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)"""
    factors = _factors_of_the_turned(op, x)
    if factors.upper.is_empty:
        result = _ones(op, factors)
    else:
        result = op.Mul(_product(op, diagonal(op, factors.upper)), _parity(op, factors))
    return result, factors.packed(op).value, factors.pivots_from_1(op)


@lowering(aten._linalg_slogdet.default)
def linalg_slogdet(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)"""
    factors = _factors_of_the_turned(op, x)
    lu, pivots = factors.packed(op).value, factors.pivots_from_1(op)
    if factors.upper.is_empty:
        ones = _ones(op, factors)
        return ones, op.Sub(ones, 1), lu, pivots
    terms = diagonal(op, factors.upper)
    signs = op.Where(op.IsNaN(terms), 0, op.Sign(terms))
    logarithm = op.ReduceSum(op.Log(op.Abs(terms)), op.const([-1]), keepdims=0)
    return op.Mul(_product(op, signs), _parity(op, factors)), logarithm, lu, pivots


def _factors_of_the_turned(op: Builder, x: ir.Value) -> _Factors:
    """A's factors; where A is contiguous those of the transposed A, which torch need not copy for LAPACK."""
    a = Matrices.of(op, x)
    return _factors(op, a.turned(op) if fake_of(x).is_contiguous() else a)


def _ones(op: Builder, factors: _Factors) -> ir.Value:
    return op.Expand(op.const(1, factors.lower.dtype), op.dims(factors.lower.batch))


def _product(op: Builder, x: ir.Value) -> ir.Value:
    return op.ReduceProd(x, op.const([-1]), keepdims=0)


def _parity(op: Builder, factors: _Factors) -> ir.Value:
    """-1 where the number of rows that were exchanged for another is odd, else 1."""
    stayed = op.Equal(factors.pivots, numbers(op, factors.upper.rows))
    count = op.ReduceSum(op.cast(op.Not(stayed), torch.int64), op.const([-1]), keepdims=0)
    return op.cast(op.Sub(1, op.Mul(2, op.Mod(count, 2))), factors.lower.dtype)
