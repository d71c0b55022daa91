"""The incomplete gamma functions by their series and their continued fraction, in float64.

The power in front of all of them is x^a exp(-x) / gamma(a + 1).
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.loops import repeated
from dort_compare.lowering.ops.elementary import expm1
from dort_compare.lowering.ops.gamma import stirling
from dort_compare.lowering.ops.logarithm import log1p
from dort_compare.lowering.ops.polynomial import Ratio, polynomial, rational
from dort_compare.lowering.ops.temme import excess

_LANCZOS_G = 6.024680040776729583740234375
_LANCZOS: Ratio = (
    (
        0.006061842346248907,
        0.5098416655656676,
        19.519927882476175,
        449.9445569063168,
        6955.999602515376,
        75999.29304014542,
        601859.6171681099,
        3481712.154980646,
        14605578.087685067,
        43338889.32467614,
        86363131.2881386,
        103794043.11634454,
        56906521.913471565,
    ),
    (
        1.0,
        66.0,
        1925.0,
        32670.0,
        357423.0,
        2637558.0,
        13339535.0,
        45995730.0,
        105258076.0,
        150917976.0,
        120543840.0,
        39916800.0,
        0.0,
    ),
)
"""Of Boost, as in torch's kernel."""
_NEGLIGIBLE = 2.0**-53
_ROUNDS = 2000
"""At most, as in torch's kernel."""
_EULER = -torch.special.digamma(torch.tensor(1.0, dtype=torch.float64)).item()
_LGAM1P = tuple(
    (-1) ** n * torch.special.zeta(torch.tensor(n, dtype=torch.float64), 2).item() / n for n in range(30, 1, -1)
)


def lower(op: Builder, a: ir.Value, x: ir.Value) -> ir.Value:
    """The regularized lower function: the power times 1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ..., DLMF 8.11.4."""

    def going(rounds: ir.Value, term: ir.Value, value: ir.Value) -> ir.Value:
        return op.And(op.Greater(term, op.Mul(value, _NEGLIGIBLE)), op.Less(rounds, _ROUNDS))

    def step(rounds: ir.Value, term: ir.Value, value: ir.Value) -> tuple[ir.Value, ...]:
        following = op.Mul(term, op.Div(x, op.Add(a, op.cast(op.Add(rounds, 1), torch.float64))))
        return following, op.Add(value, following)

    one = op.const(1.0, torch.float64)
    return op.Mul(_power(op, a, x), repeated(op, (one, one), going, step)[1])


def upper(op: Builder, a: ir.Value, x: ir.Value) -> ir.Value:
    """The regularized upper function for x beyond 1 and a: the power times a / (x + 1 - a - (1 - a) / (x + 3 - a - ...

    The even part of DLMF 8.9.2, by Lentz's method as modified by Thompson and Barnett.
    """
    begins = op.Sub(op.Add(x, 1.0), a)
    reciprocal = op.Reciprocal(begins)
    far = op.const(1e300, torch.float64)

    def going(rounds: ir.Value, _: ir.Value, __: ir.Value, factor: ir.Value, ___: ir.Value) -> ir.Value:
        return op.And(op.Greater(op.Abs(op.Sub(factor, 1.0)), 2 * _NEGLIGIBLE), op.Less(rounds, _ROUNDS))

    def step(rounds: ir.Value, c: ir.Value, d: ir.Value, _: ir.Value, value: ir.Value) -> tuple[ir.Value, ...]:
        n = op.cast(op.Add(rounds, 1), torch.float64)
        numerator = op.Mul(n, op.Sub(a, n))
        denominator = op.Add(begins, op.Mul(n, 2.0))
        d = op.Reciprocal(op.Add(op.Mul(numerator, d), denominator))
        c = op.Add(denominator, op.Div(numerator, c))
        return c, d, op.Mul(c, d), op.Mul(value, op.Mul(c, d))

    state = far, reciprocal, op.const(0.0, torch.float64), reciprocal
    return op.Mul(op.Mul(_power(op, a, x), a), repeated(op, state, going, step)[3])


def upper_of_small(op: Builder, a: ir.Value, x: ir.Value) -> ir.Value:
    """The regularized upper function for x and a about 1 and less, where the lower one is all but 1: DLMF 8.7.3."""

    def going(rounds: ir.Value, power: ir.Value, term: ir.Value, value: ir.Value) -> ir.Value:
        counts = op.Greater(op.Abs(term), op.Mul(op.Abs(value), _NEGLIGIBLE))
        return op.And(op.Or(op.Equal(rounds, 0), counts), op.Less(rounds, _ROUNDS))

    def step(rounds: ir.Value, power: ir.Value, term: ir.Value, value: ir.Value) -> tuple[ir.Value, ...]:
        n = op.cast(op.Add(rounds, 1), torch.float64)
        power = op.Div(op.Mul(power, op.Neg(x)), n)
        term = op.Div(power, op.Add(a, n))
        return power, term, op.Add(value, term)

    one, zero = op.const(1.0, torch.float64), op.const(0.0, torch.float64)
    value = repeated(op, (one, zero, zero), going, step)[2]
    exponent = op.Sub(op.Mul(a, op.Log(x)), _lgam1p(op, a))
    return op.Neg(op.Add(expm1(op, exponent), op.Mul(op.Mul(op.Exp(exponent), a), value)))


def _lgam1p(op: Builder, a: ir.Value) -> ir.Value:
    """log(gamma(1 + a)) for a up to 1.5, by that of t = a, or a - 1 from 1/2 on: (1 - gamma) t - log(1 + t) + ...

    DLMF 5.7.3.
    """
    is_large = op.Greater(a, 0.5)
    t = op.Where(is_large, op.Sub(a, 1.0), a)
    series = op.Mul(op.Add(op.Mul(polynomial(op, t, _LGAM1P), t), 1 - _EULER), t)
    return op.Add(op.Sub(series, log1p(op, t)), op.Where(is_large, op.Log(a), 0.0))


def _power(op: Builder, a: ir.Value, x: ir.Value) -> ir.Value:
    """x^a exp(-x) / gamma(a + 1): up to 10 by Lanczos' approximation, from there by Stirling's series."""
    is_large = op.GreaterOrEqual(a, 10.0)
    by_lanczos = _power_of_small(op, op.Where(is_large, 1.0, a), x)
    return op.Where(is_large, _power_of_large(op, op.Where(is_large, a, 10.0), x), by_lanczos)


def _power_of_small(op: Builder, a: ir.Value, x: ir.Value) -> ir.Value:
    """With g = 6.02468..., b = a + g - 1/2 and s the scaled sum (b / e)^(1/2 - a) gamma(a) of Boost."""
    base = op.Add(a, _LANCZOS_G - 0.5)
    scale = op.Div(op.Sqrt(op.Div(base, math.e)), op.Mul(rational(op, a, _LANCZOS), a))
    return op.Mul(scale, op.Mul(op.Exp(op.Sub(a, x)), op.Pow(op.Div(x, base), a)))


def _power_of_large(op: Builder, a: ir.Value, x: ir.Value) -> ir.Value:
    """exp(-a (mu - log(1 + mu)) - 1 / (12 a) + ...) / sqrt(2 pi a) with mu = (x - a) / a."""
    mu = op.Div(op.Sub(x, a), a)
    is_near = op.Less(op.Abs(mu), 0.3)
    near, far = excess(op, op.Where(is_near, mu, 0.0)), op.Sub(mu, op.Log(op.Div(x, a)))
    exponent = op.Add(op.Mul(a, op.Where(is_near, near, far)), stirling(op, a))
    return op.Div(op.Exp(op.Neg(exponent)), op.Sqrt(op.Mul(a, 2 * math.pi)))
