"""The logarithm of the gamma function and its derivatives, computed in float64."""

from __future__ import annotations

import functools
import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.polynomial import polynomial
from dort_compare.lowering.ops.rounding import truncated
from dort_compare.lowering.ops.zeta import hurwitz
from dort_compare.lowering.precision import in_float64
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten
prims = torch.ops.prims


def _zeta_less_one(k: int) -> float:
    """1 / 2^k + 1 / 3^k + ..., by Euler's and Maclaurin's formula from 1 / 64^k on."""
    n = 64
    tail = n ** (1 - k) / (k - 1) + n**-k / 2 + k * n ** (-k - 1) / 12 - k * (k + 1) * (k + 2) * n ** (-k - 3) / 720
    fifth = k * (k + 1) * (k + 2) * (k + 3) * (k + 4) * n ** (-k - 5) / 30240
    return math.fsum([*(m**-k for m in range(2, n)), tail, fifth])


_EULER = 0.5772156649015329
_AT_TWO = (*((-1) ** k * _zeta_less_one(k) / k for k in range(26, 1, -1)), 1 - _EULER)
"""Of z^25, z^24, ...: lgamma(2 + z) / z, whose terms are below 4^-k / k for z up to 1/2."""
_STIRLING = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_DIGAMMA = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
_TRIGAMMA = (1 / 42, -1 / 30, 1 / 6)


@lowering(aten.lgamma.default, prims.lgamma.default)
@in_float64
def lgamma(op: Builder, x: ir.Value) -> ir.Value:
    """lgamma(Tensor self) -> Tensor

    Below 1/2 by reflection: log(pi / |sin(pi x)|) - lgamma(1 - x).
    """
    reflects = op.Less(x, 0.5)
    positive = _positive_lgamma(op, op.Where(reflects, op.Sub(1, x), x))
    reflected = op.Sub(op.Log(op.Div(math.pi, op.Abs(_sine_of_pi(op, x)))), positive)
    return op.Where(op.IsInf(x), math.inf, op.Where(reflects, reflected, positive))


def _sine_of_pi(op: Builder, x: ir.Value) -> ir.Value:
    """sin(pi x) but for the sign, 0 at integers."""
    return op.Sin(op.Mul(op.Sub(x, op.Round(x)), math.pi))


def _positive_lgamma(op: Builder, x: ir.Value) -> ir.Value:
    """For x from 1/2 on: by Stirling's series from 10 on, below by the series at 2 and lgamma(x + 1) - log(x).

    The latter takes x to between 3/2 and 5/2, up once or down by factors, and nothing larger than the result cancels.
    """
    is_small, goes_up = op.Less(x, 10), op.Less(x, 1.5)
    down = [op.Sub(x, float(k)) for k in range(1, 9)]
    counts = [op.GreaterOrEqual(each, 1.5) for each in down]
    factors = [op.Where(counted, each, 1.0) for counted, each in zip(counts, down, strict=True)]
    lowest = functools.reduce(lambda found, each: op.Where(each[0], each[1], found), zip(counts, down, strict=True), x)
    beyond = op.Where(goes_up, op.Sub(x, 1), op.Sub(lowest, 2))
    log = op.Log(op.Where(goes_up, x, functools.reduce(op.Mul, factors)))
    small = op.Add(op.Mul(beyond, polynomial(op, beyond, _AT_TWO)), op.Where(goes_up, op.Neg(log), log))
    large = op.Where(is_small, 10.0, x)
    main = op.Sub(op.Mul(op.Sub(large, 0.5), op.Log(large)), large)
    value = op.Add(op.Add(main, math.log(2 * math.pi) / 2), stirling(op, large))
    return op.Where(is_small, small, value)


def stirling(op: Builder, x: ir.Value) -> ir.Value:
    """1 / (12 x) - 1 / (360 x^3) + ..., for x from 10 on."""
    return op.Div(polynomial(op, op.Reciprocal(op.Mul(x, x)), _STIRLING), x)


@lowering(aten.digamma.default, prims.digamma.default)
@in_float64
def digamma(op: Builder, x: ir.Value) -> ir.Value:
    """digamma(Tensor self) -> Tensor

    Below zero by reflection: digamma(1 - x) - pi / tan(pi x), and NaN at integers, as in Cephes' psi.c.
    """
    reflects = op.Less(x, 0)
    positive = _positive_digamma(op, op.Where(reflects, op.Sub(1, x), x))
    whole = truncated(op, x)
    angle = op.Mul(op.Sub(x, whole), math.pi)
    cotangent = op.Div(op.Mul(op.Cos(angle), math.pi), op.Sin(angle))
    reflected = op.Where(op.Equal(x, whole), math.nan, op.Sub(positive, cotangent))
    return op.Where(reflects, reflected, positive)


def _positive_digamma(op: Builder, x: ir.Value) -> ir.Value:
    """Its asymptotic series at x + 10, less 1 / x + ... + 1 / (x + 9)."""
    shifted = functools.reduce(op.Add, [op.Reciprocal(op.Add(x, float(k))) for k in range(9, 0, -1)])
    large = op.Add(x, 10.0)
    z = op.Reciprocal(op.Mul(large, large))
    series = op.Sub(op.Sub(op.Log(large), op.Div(0.5, large)), op.Mul(z, polynomial(op, z, _DIGAMMA)))
    return op.Sub(op.Sub(series, shifted), op.Reciprocal(x))


@lowering(aten.polygamma.default)
def polygamma(op: Builder, n: int, x: ir.Value) -> ir.Value:
    """polygamma(int n, Tensor self) -> Tensor

    From n = 2 on (-1)^(n + 1) n! zeta(n + 1, x), each rounded to torch's dtype before the product.
    """
    if n < 2:
        return trigamma(op, x) if n else digamma(op, x)
    factorial = torch.tensor(math.lgamma(n + 1), dtype=torch.float64).exp().item()
    value = in_float64(hurwitz)(op, op.const(n + 1, torch.float64), x)
    return op.Mul(value, op.const(factorial if n % 2 else -factorial, op.result.dtype))


@in_float64
def trigamma(op: Builder, x: ir.Value) -> ir.Value:
    """The derivative of digamma: 1 / x^2 + ... + 1 / (x + 5)^2 and three terms of its series at x + 6, as torch has it.

    Below 1/2 by reflection: (pi / sin(pi x))^2 - trigamma(1 - x).
    """
    reflects = op.Less(x, 0.5)
    positive = _positive_trigamma(op, op.Where(reflects, op.Sub(1, x), x))
    ratio = op.Div(math.pi, _sine_of_pi(op, x))
    return op.Where(reflects, op.Sub(op.Mul(ratio, ratio), positive), positive)


def _positive_trigamma(op: Builder, x: ir.Value) -> ir.Value:
    terms = [op.Add(x, float(k)) for k in range(6)]
    shifted = functools.reduce(op.Add, [op.Reciprocal(op.Mul(term, term)) for term in terms])
    large = op.Add(x, 6.0)
    z = op.Reciprocal(op.Mul(large, large))
    series = op.Add(op.Add(op.Div(0.5, large), 1.0), op.Mul(z, polynomial(op, z, _TRIGAMMA)))
    return op.Add(shifted, op.Div(series, large))
