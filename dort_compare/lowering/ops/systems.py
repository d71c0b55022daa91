"""Systems of equations and inverses, by elimination."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.lu import factors_of, order_after, refuse_what_raises, reordered
from dort_compare.lowering.ops.matrices import Matrices, identity, sizes_of, upright
from dort_compare.lowering.ops.operands import same_shape
from dort_compare.lowering.ops.triangular import solved
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import shape_of

aten = torch.ops.aten


def _solved(op: Builder, lu: Matrices, order: ir.Value, b: Matrices, *, left: bool, adjoint: bool) -> Matrices:
    """X of A X = B or, from the right, of X A = B, which is A' X' = B'; of A' in place of A if ``adjoint``.

    ``lu`` and ``order`` are A's, the batch is B's.
    """
    if b.is_empty:
        return b
    if not left:
        return _solved(op, lu, order, b.turned(op), left=True, adjoint=not adjoint).turned(op)
    if not adjoint:
        exchanged = b.holding(reordered(op, b, order))
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
    order = order_after(op, pivots, factors.batch, factors.rows, factors.rows)
    return _solved(op, factors, order, sides, left=left, adjoint=adjoint).value


@lowering(aten._linalg_solve_ex.default)
def linalg_solve_ex(
    op: Builder, x: ir.Value, b: ir.Value, *, left: bool = True, check_errors: bool = False
) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False)
    -> (Tensor result, Tensor LU, Tensor pivots, Tensor info)

    B holds vectors where it has the shape of A without its last dimension.
    """
    refuse_what_raises(op, pivot=True, check_errors=check_errors)
    is_vector = len(shape_of(b)) == 1 or same_shape(shape_of(b), shape_of(x)[:-1])
    a = Matrices.of(op, x)
    result = op.result[0]
    sides = _sides(op, x, b, result, is_vector)
    factors = factors_of(op, a)
    lu = factors.packed(op)
    found = _solved(op, lu, factors.order, sides, left=left, adjoint=False)
    return (
        op.Squeeze(found.value, [-1]) if is_vector else found.value,
        lu.value,
        factors.pivots_from_1(op),
        factors.info(op),
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
    refuse_what_raises(op, pivot=True, check_errors=check_errors)
    a = Matrices.of(op, x)
    factors = factors_of(op, a)
    unit = a.holding(op.Expand(identity(op, a.rows, a.columns, a.dtype), op.Shape(x)))
    inverse = _solved(op, factors.packed(op), factors.order, unit, left=True, adjoint=False)
    return inverse.value, factors.info(op)
