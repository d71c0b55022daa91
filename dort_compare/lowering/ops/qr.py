"""Householder's reflections: A = Q R, with the signs of LAPACK (geqrf, orgqr, ormqr).

Each reflection is I - tau v v', where v is 1 at the diagonal, 0 above it, and kept below the diagonal of R.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.loops import loop
from dort_compare.lowering.ops.matrices import Matrices, column, identity, numbers, row, triangle, turned, upright
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import minus, smaller
from dort_compare.lowering.values import Dim

aten = torch.ops.aten


def _factored(op: Builder, a: Matrices) -> tuple[Matrices, ir.Value]:
    """R with the reflections below its diagonal, and tau (LAPACK's larfg).

    A column that is zero below the diagonal is not reflected: tau is 0. All is measured in the largest element of the
    column, whose square might overflow.
    """
    k = smaller(op, a.rows, a.columns)
    rows, columns, steps = (numbers(op, size) for size in (a.rows, a.columns, k))
    down = upright(op, rows)

    def body(i: ir.Value, r: ir.Value, tau: ir.Value) -> list[ir.Value]:
        whole = column(op, r, i)
        kept = op.Where(op.GreaterOrEqual(down, i), whole, 0)
        largest = op.ReduceMax(op.Abs(kept), [-2], keepdims=1)
        unit = op.Where(op.Equal(largest, 0), 1, largest)
        scaled = op.Div(kept, unit)
        first = row(op, scaled, i)
        is_zero = op.Equal(op.ReduceSum(op.Abs(op.Where(op.Greater(down, i), whole, 0)), [-2], keepdims=1), 0)
        norm = op.Sqrt(op.ReduceSumSquare(scaled, [-2], keepdims=1))
        beta = op.Where(is_zero, first, op.Where(op.Less(first, 0), norm, op.Neg(norm)))
        factor = op.Where(is_zero, 0, op.Div(op.Sub(beta, first), op.Where(is_zero, 1, beta)))
        vector = op.Div(op.Where(op.Greater(down, i), scaled, 0), op.Where(is_zero, 1, op.Sub(first, beta)))
        stored = op.Where(op.Greater(down, i), vector, op.Where(op.Equal(down, i), op.Mul(beta, unit), whole))
        reflected = _reflected(op, r, op.Where(op.Equal(down, i), 1, vector), factor, len(a.batch) + 2)
        r = op.Where(op.Greater(columns, i), reflected, op.Where(op.Equal(columns, i), stored, r))
        return [r, op.Where(op.Equal(steps, i), op.Squeeze(factor, [-1]), tau)]

    zeros = op.Expand(op.const(0, a.dtype), op.dims([*a.batch, k]))
    r, tau = loop(op, k, [a.value, zeros], body)
    return a.holding(r), tau


def _reflected(op: Builder, x: ir.Value, v: ir.Value, tau: ir.Value, rank: int) -> ir.Value:
    """(I - tau v v') x"""
    return op.Sub(x, op.MatMul(op.Mul(tau, v), op.MatMul(turned(op, v, rank), x)))


def _multiplied(op: Builder, reflections: Matrices, tau: ir.Value, x: Matrices, *, transpose: bool, k: Dim) -> Matrices:
    """Q x, where Q is the product of the first k reflections in order, or Q' x."""
    if k == 0 or x.is_empty:
        return x
    down = upright(op, numbers(op, x.rows))
    below = triangle(op, reflections.value, upper=False, offset=-1)

    def body(i: ir.Value, product: ir.Value) -> list[ir.Value]:
        at = i if transpose else op.Sub(op.const(minus(op, k, 1)), i)
        vector = op.Where(op.Equal(down, at), 1, column(op, below, at))
        return [_reflected(op, product, vector, upright(op, column(op, tau, at)), len(x.batch) + 2)]

    (product,) = loop(op, k, [x.value], body)
    return x.holding(product)


def _unit(op: Builder, like: Matrices, columns: Dim) -> Matrices:
    """The first columns of the identity of as many rows."""
    unit = identity(op, like.rows, columns, like.dtype)
    return Matrices(op.Expand(unit, op.dims([*like.batch, like.rows, columns])), like.batch, like.rows, columns)


@lowering(aten.geqrf.default)
def geqrf(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """geqrf(Tensor self) -> (Tensor a, Tensor tau)"""
    a = Matrices.of(op, x)
    if a.is_empty:
        return x, op.Expand(op.const(0, a.dtype), op.dims([*a.batch, smaller(op, a.rows, a.columns)]))
    factors, tau = _factored(op, a)
    return factors.value, tau


@lowering(aten.linalg_qr.default)
def linalg_qr(op: Builder, x: ir.Value, mode: str = "reduced") -> tuple[ir.Value, ir.Value]:
    """linalg_qr(Tensor A, str mode="reduced") -> (Tensor Q, Tensor R)"""
    a = Matrices.of(op, x)
    k = smaller(op, a.rows, a.columns)
    kept = a.rows if mode == "complete" else k
    if a.is_empty:
        q = op.const([], a.dtype) if mode == "r" else _unit(op, a, kept).value
        return q, a.filled(op, 0, kept, a.columns)
    factors, tau = _factored(op, a)
    r = op.Slice(triangle(op, factors.value, upper=True), [0], op.dims([kept]), [-2])
    if mode == "r":
        return op.const([], a.dtype), r
    return _multiplied(op, factors, tau, _unit(op, a, kept), transpose=False, k=k).value, r


@lowering(aten.linalg_householder_product.default)
def linalg_householder_product(op: Builder, x: ir.Value, tau: ir.Value) -> ir.Value:
    """linalg_householder_product(Tensor input, Tensor tau) -> Tensor"""
    reflections = Matrices.of(op, x)
    unit = _unit(op, reflections, reflections.columns)
    return _multiplied(op, reflections, tau, unit, transpose=False, k=op.size(tau, -1)).value


@lowering(aten.ormqr.default)
def ormqr(
    op: Builder, x: ir.Value, tau: ir.Value, other: ir.Value, left: bool = True, transpose: bool = False
) -> ir.Value:
    """ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor

    C Q is the same as (Q' C')'.
    """
    reflections, multiplied, k = Matrices.of(op, x), Matrices.of(op, other), op.size(tau, -1)
    if left:
        return _multiplied(op, reflections, tau, multiplied, transpose=transpose, k=k).value
    found = _multiplied(op, reflections, tau, multiplied.turned(op), transpose=not transpose, k=k)
    return found.turned(op).value
