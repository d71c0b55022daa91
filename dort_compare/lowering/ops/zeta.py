"""Hurwitz' zeta function, computed in float64."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.loops import repeated
from dort_compare.lowering.ops.operands import in_kernel_dtype
from dort_compare.lowering.precision import in_float64
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten
prims = torch.ops.prims

_DIVISORS = (
    12.0,
    -720.0,
    30240.0,
    -1209600.0,
    47900160.0,
    -1.8924375803183791606e9,
    7.47242496e10,
    -2.950130727918164224e12,
    1.1646782814350067249e14,
    -4.5979787224074726105e15,
    1.8152105401943546773e17,
    -7.1661652561756670113e18,
)
_NEGLIGIBLE = 2.0**-53


@lowering(aten.special_zeta.default, aten.special_zeta.self_scalar, aten.special_zeta.other_scalar, prims.zeta.default)
@in_kernel_dtype()
def zeta(op: Builder, x: ir.Value, q: ir.Value) -> ir.Value:
    """special_zeta(Tensor self, Tensor other) -> Tensor"""
    return in_float64(hurwitz)(op, x, q)


def hurwitz(op: Builder, x: ir.Value, q: ir.Value) -> ir.Value:
    """q^-x + (q + 1)^-x + ... in float64.

    Infinite for x = 1 and at the poles, NaN below 1 and where a negative q has no such power.
    """
    below = op.LessOrEqual(q, 0)
    pole = op.Or(op.Equal(x, 1), op.And(below, op.Equal(q, op.Floor(q))))
    no_power = op.And(below, op.Not(op.Equal(x, op.Floor(x))))
    too_small = op.Less(x, 1)
    value = _sum(op, x, op.Where(op.Or(pole, op.Or(no_power, too_small)), 1, q))
    value = op.Where(pole, math.inf, op.Where(no_power, math.nan, value))
    return op.Where(too_small, math.nan, value)


def _sum(op: Builder, x: ir.Value, q: ir.Value) -> ir.Value:
    """Nine terms, or as many as lead beyond 9, then the Euler-Maclaurin formula, as in Cephes' zeta.c.

    Where a term no longer counts, the sum ends with it.
    """
    power = op.Neg(x)
    first = op.Pow(q, power)

    def negligible(term: ir.Value, value: ir.Value) -> ir.Value:
        least = op.Mul(value, _NEGLIGIBLE)
        return op.And(op.Less(op.Neg(least), term), op.Less(term, least))

    def going(rounds: ir.Value, base: ir.Value, term: ir.Value, value: ir.Value) -> ir.Value:
        return op.And(op.Or(op.Less(rounds, 9), op.LessOrEqual(base, 9)), op.Not(negligible(term, value)))

    def step(rounds: ir.Value, base: ir.Value, term: ir.Value, value: ir.Value) -> tuple[ir.Value, ...]:
        following = op.Add(base, 1)
        added = op.Pow(following, power)
        return following, added, op.Add(value, added)

    base, term, value = repeated(op, (q, first, first), going, step)
    return op.Where(negligible(term, value), value, op.Add(value, _rest(op, x, base, term)))


def _rest(op: Builder, x: ir.Value, base: ir.Value, term: ir.Value) -> ir.Value:
    """The terms after ``base``^-x: base term / (x - 1) - term / 2 + x term / (12 base) - ..."""
    rest = op.Sub(op.Div(op.Mul(term, base), op.Sub(x, 1)), op.Mul(term, 0.5))
    rising = x
    for i, divisor in enumerate(_DIVISORS):
        if i:
            rising = op.Mul(op.Mul(rising, op.Add(x, 2.0 * i - 1)), op.Add(x, 2.0 * i))
            term = op.Div(term, base)
        term = op.Div(term, base)
        rest = op.Add(rest, op.Div(op.Mul(rising, term), divisor))
    return rest
