"""The exponential of a matrix."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.loops import loop
from dort_compare.lowering.ops.matrices import Matrices, identity
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten

_DEGREE = 18
"""Of the Taylor polynomial."""
_NORMS = {torch.float32: 3.010066362817634, torch.float64: 1.090863719290036}
"""Up to which norm a polynomial of this degree is exact to the last place (torch's LinearAlgebra.cpp)."""


@lowering(aten.linalg_matrix_exp.default)
def linalg_matrix_exp(op: Builder, x: ir.Value) -> ir.Value:
    """linalg_matrix_exp(Tensor self) -> Tensor

    exp(A) = exp(A / 2^s)^(2^s), the least s for which a Taylor polynomial of A / 2^s is exact enough, by Horner's
    rule (Higham, Functions of Matrices, 10.3; torch takes polynomials of lower degrees where they do).
    """
    a = Matrices.of(op, x)
    if a.dtype not in _NORMS:
        raise op.unsupported("a matrix exponential in half precision")
    if a.is_empty:
        return x
    norm = op.ReduceMax(op.ReduceSum(op.Abs(x), [-2], keepdims=1), [-1], keepdims=1)
    excess = op.Div(norm, op.const(_NORMS[a.dtype], a.dtype))
    halvings = op.Ceil(op.Div(op.Log(excess), op.const(math.log(2), a.dtype)))
    is_finite = op.Not(op.Or(op.IsNaN(norm), op.IsInf(norm)))
    halvings = op.Where(op.And(is_finite, op.Greater(excess, 1)), halvings, 0)
    scaled = op.Mul(x, op.Pow(op.const(2, a.dtype), op.Neg(halvings)))
    unit = identity(op, a.rows, a.columns, a.dtype)

    def horner(i: ir.Value, polynomial: ir.Value) -> list[ir.Value]:
        degree = op.cast(op.Sub(_DEGREE, i), a.dtype)
        return [op.Add(unit, op.Div(op.MatMul(scaled, polynomial), degree))]

    def square(i: ir.Value, power: ir.Value) -> list[ir.Value]:
        return [op.Where(op.Less(op.cast(i, a.dtype), halvings), op.MatMul(power, power), power)]

    (small,) = loop(op, _DEGREE, [op.Expand(unit, op.Shape(x))], horner)
    most = op.ReduceMax(op.Reshape(op.cast(halvings, torch.int64), [-1]), keepdims=0)
    (power,) = loop(op, most, [small], square)
    return power
