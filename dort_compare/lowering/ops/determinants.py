"""Determinants, by elimination."""

from __future__ import annotations

import onnx_ir as ir
import torch
from torch._prims_common import is_contiguous_or_false

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.lu import Factors, factors_of
from dort_compare.lowering.ops.matrices import Matrices, diagonal, numbers
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import fake_of

aten = torch.ops.aten


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
    logarithm = op.ReduceSum(op.Log(op.Abs(terms)), [-1], keepdims=0)
    return op.Mul(_product(op, signs), _parity(op, factors)), logarithm, lu, pivots


def _factors_of_the_turned(op: Builder, x: ir.Value) -> Factors:
    """A's factors; where A is contiguous those of the transposed A, which torch need not copy for LAPACK."""
    a = Matrices.of(op, x)
    return factors_of(op, a.turned(op) if is_contiguous_or_false(fake_of(x)) else a)


def _ones(op: Builder, factors: Factors) -> ir.Value:
    return op.Expand(op.const(1, factors.lower.dtype), op.dims(factors.lower.batch))


def _product(op: Builder, x: ir.Value) -> ir.Value:
    return op.ReduceProd(x, [-1], keepdims=0)


def _parity(op: Builder, factors: Factors) -> ir.Value:
    """-1 where the number of rows that were exchanged for another is odd, else 1."""
    stayed = op.Equal(factors.pivots, numbers(op, factors.upper.rows))
    count = op.ReduceSum(op.cast(op.Not(stayed), torch.int64), [-1], keepdims=0)
    return op.cast(op.Sub(1, op.Mul(2, op.Mod(count, 2))), factors.lower.dtype)
