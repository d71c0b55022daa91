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
    """For x from 1/2 on by Stirling's series, below 10 that of x + 9, less log(x (x + 1) ... (x + 8)).

    0 at 1 and 2, where a rounding would be left over.
    """
    small = op.Less(x, 10)
    factors = [op.Add(x, float(k)) for k in range(9)]
    product = op.Where(small, functools.reduce(op.Mul, factors), 1.0)
    large = op.Where(small, op.Add(x, 9.0), x)
    main = op.Sub(op.Mul(op.Sub(large, 0.5), op.Log(large)), large)
    value = op.Sub(op.Add(op.Add(main, math.log(2 * math.pi) / 2), stirling(op, large)), op.Log(product))
    return op.Where(op.Or(op.Equal(x, 1), op.Equal(x, 2)), 0, value)


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
