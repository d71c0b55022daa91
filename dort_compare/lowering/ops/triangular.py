"""Systems of equations whose matrix is a triangle, solved row by row."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.loops import loop
from dort_compare.lowering.ops.matrices import Matrices, column, numbers, row, sizes_of, triangle, upright
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import minus

aten = torch.ops.aten


def solved(op: Builder, a: Matrices, b: Matrices, *, upper: bool, unit: bool = False) -> Matrices:
    """X of A X = B, where A is what the triangle holds, with ones on its diagonal if ``unit``.

    The batch is that of B, to which A's is broadcast.
    """
    if b.is_empty:
        return b
    beside = triangle(op, a.value, upper, 1 if upper else -1)
    places = upright(op, numbers(op, a.rows))

    def body(i: ir.Value, x: ir.Value) -> list[ir.Value]:
        at = op.Sub(op.const(minus(op, a.rows, 1)), i) if upper else i
        rest = op.Sub(row(op, b.value, at), op.MatMul(row(op, beside, at), x))
        found = rest if unit else op.Div(rest, column(op, row(op, a.value, at), at))
        return [op.Where(op.Equal(places, at), found, x)]

    (x,) = loop(op, a.rows, [b.filled(op, 0, b.rows, b.columns)], body)
    return b.holding(x)


@lowering(aten.linalg_solve_triangular.default)
def linalg_solve_triangular(
    op: Builder, a: ir.Value, b: ir.Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> ir.Value:
    """linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor

    X A = B is the same as A' X' = B'. B may have another dtype than A, as under autocast; the result has A's.
    """
    matrix, sides = Matrices.of(op, a), Matrices.of(op, b).in_batch(op, sizes_of(op, (a, b), op.result))
    sides = sides.holding(op.cast(sides.value, op.result.dtype))
    if left:
        return solved(op, matrix, sides, upper=upper, unit=unitriangular).value
    return solved(op, matrix.turned(op), sides.turned(op), upper=not upper, unit=unitriangular).turned(op).value


@lowering(aten.triangular_solve.default)
def triangular_solve(
    op: Builder, b: ir.Value, a: ir.Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[ir.Value, ir.Value]:
    """triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False)
    -> (Tensor solution, Tensor cloned_coefficient)
    """
    batch = sizes_of(op, (a, b), op.result[0])
    matrix, sides = Matrices.of(op, a).in_batch(op, batch), Matrices.of(op, b).in_batch(op, batch)
    a_turned = matrix.turned(op) if transpose else matrix
    return solved(op, a_turned, sides, upper=upper != transpose, unit=unitriangular).value, matrix.value
