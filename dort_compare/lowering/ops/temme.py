"""The incomplete gamma functions of a large parameter a and an argument near it, by Temme's uniform expansion.

DLMF 8.12, in float64: with lambda = x / a and eta^2 / 2 = lambda - 1 - log(lambda), half an error function of eta and
exp(-a eta^2 / 2) / sqrt(2 pi a) times the sum of c_k(eta) a^-k.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.erf import erfc_in_float64
from dort_compare.lowering.ops.polynomial import polynomial

_TERMS, _DEGREE = 12, 22
"""How many c_k, and how many coefficients of each, count in float64 where the expansion is used."""
_ATANH = tuple(1 / n for n in range(27, 1, -2))
_PI = torch.tensor(math.pi).item()
"""As float32 holds it: torch's kernel (2.13) has no other, also in float64."""


def is_near(op: Builder, a: ir.Value, x: ir.Value) -> ir.Value:
    """Where torch's kernel expands."""
    distance = op.Div(op.Abs(op.Sub(x, a)), a)
    small = op.And(op.And(op.Greater(a, 20.0), op.Less(a, 200.0)), op.Less(distance, 0.3))
    return op.Or(small, op.And(op.Greater(a, 200.0), op.Less(distance, op.Div(4.5, op.Sqrt(a)))))


def expanded(op: Builder, a: ir.Value, x: ir.Value, *, upper: bool) -> ir.Value:
    """The regularized function, upper or lower."""
    mu = op.Div(op.Sub(x, a), a)
    half_square = excess(op, mu)
    one = op.const(1.0, torch.float64)
    sign = op.Where(op.Less(mu, 0.0), op.Neg(one), one)
    exponent = op.Mul(a, half_square)
    rest = _sum(op, a, op.Mul(sign, op.Sqrt(op.Mul(half_square, 2.0))))
    rest = op.Div(op.Mul(op.Exp(op.Neg(exponent)), rest), op.Sqrt(op.Mul(a, 2 * _PI)))
    argument = op.Mul(sign, op.Sqrt(exponent))
    if upper:
        return op.Add(op.Mul(erfc_in_float64(op, argument), 0.5), rest)
    return op.Sub(op.Mul(erfc_in_float64(op, op.Neg(argument)), 0.5), rest)


def excess(op: Builder, mu: ir.Value) -> ir.Value:
    """mu - log(1 + mu) for small mu: mu r - 2 (r^3 / 3 + r^5 / 5 + ...) with r = mu / (2 + mu)."""
    r = op.Div(mu, op.Add(mu, 2.0))
    square = op.Mul(r, r)
    return op.Sub(op.Mul(mu, r), op.Mul(op.Mul(op.Mul(square, r), polynomial(op, square, _ATANH)), 2.0))


def _sum(op: Builder, a: ir.Value, eta: ir.Value) -> ir.Value:
    """Of c_k(eta) a^-k, the c_k side by side."""
    *others, constants = ([row[n] for row in _coefficients()] for n in range(_DEGREE - 1, -1, -1))
    eta, a = op.Unsqueeze(eta, [-1]), op.Unsqueeze(a, [-1])
    values = op.const(others[0], torch.float64)
    for column in [*others[1:], constants]:
        values = op.Add(op.Mul(values, eta), op.const(column, torch.float64))
    powers = op.Pow(a, op.const([-float(k) for k in range(_TERMS)], torch.float64))
    return op.ReduceSum(op.Mul(values, powers), [-1], keepdims=0)


@functools.cache
def _coefficients() -> tuple[tuple[float, ...], ...]:
    """Of the powers of eta in c_k, DLMF 8.12.10 to 8.12.12, exact until they are rounded."""
    count = _DEGREE + 2 * _TERMS
    alpha = _alpha(count + 3)
    row = [Fraction(-1, 3), *((n + 2) * alpha[n + 2] for n in range(1, count))]
    first, rows = row, [row]
    double_factorial = 1
    for k in range(1, _TERMS):
        double_factorial *= 2 * k + 1
        stirling = (-1) ** k * double_factorial * alpha[2 * k + 1]
        row = [stirling * c + (n + 2) * d for n, (c, d) in enumerate(zip(first, row[2:], strict=False))]
        rows.append(row)
    return tuple(tuple(float(c) for c in row[:_DEGREE]) for row in rows)


def _alpha(count: int) -> list[Fraction]:
    """lambda - 1 = alpha_1 eta + alpha_2 eta^2 + ..., alpha_0 left out of use."""
    alpha = [Fraction(0), Fraction(1)]
    for n in range(2, count):
        products = sum((j * alpha[j] * alpha[n + 1 - j] for j in range(2, n)), Fraction(0))
        alpha.append((alpha[n - 1] - products) / (n + 1))
    return alpha
