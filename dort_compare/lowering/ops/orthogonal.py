"""Orthogonal polynomials whose degree is a tensor: by recurrence, as in ATen/native/Math.h."""

from __future__ import annotations

import functools
from collections.abc import Callable

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.loops import repeated
from dort_compare.lowering.ops.operands import in_kernel_dtype
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of

aten = torch.ops.aten
Polynomial = Callable[[Builder, ir.Value, ir.Value], ir.Value]
"""Of x and the degree, an int64."""


def orthogonal(name: str) -> Callable[[Polynomial], Polynomial]:
    """Registers the polynomial of that name with a tensor or a number as its x or n.

    torch truncates n to an integer. Below 0, and at NaN and infinity, the polynomial is 0.
    """

    def register(polynomial: Polynomial) -> Polynomial:
        packet = getattr(aten, f"special_{name}")

        @lowering(packet.default, packet.x_scalar, packet.n_scalar)
        @in_kernel_dtype()
        @functools.wraps(polynomial)
        def lowered(op: Builder, x: ir.Value, n: ir.Value) -> ir.Value:
            degree = op.cast(op.Where(op.Less(op.Abs(n), 2.0**63), n, -1), torch.int64)
            return op.Where(op.Less(degree, 0), 0, polynomial(op, x, degree))

        return polynomial

    return register


def recurrence(
    op: Builder, n: ir.Value, first: ir.Value, following: Callable[[ir.Value, ir.Value, ir.Value], ir.Value]
) -> ir.Value:
    """P_n, of which P_0 is 1, P_1 is ``first`` and P_{k + 1} is ``following(k, P_k, P_{k - 1})``; NaN ends it."""
    dtype = dtype_of(first)

    def going(rounds: ir.Value, value: ir.Value, before: ir.Value) -> ir.Value:
        return op.And(op.Less(op.Add(rounds, 1), n), op.Not(op.IsNaN(value)))

    def step(rounds: ir.Value, value: ir.Value, before: ir.Value) -> tuple[ir.Value, ir.Value]:
        return following(op.cast(op.Add(rounds, 1), dtype), value, before), value

    value, _ = repeated(op, (first, op.const(1, dtype)), going, step)
    return op.Where(op.Equal(n, 0), 1, value)


def alternating(op: Builder, n: ir.Value, dtype: torch.dtype) -> ir.Value:
    """(-1)^n of an int64."""
    return op.Sub(1, op.Mul(op.cast(op.Mod(n, 2), dtype), 2))


def _up_to_limit(op: Builder, n: ir.Value, dtype: torch.dtype, polynomial: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """A Hermite polynomial of degree n: beyond 128 (float32), 512 (float64) torch returns NaN."""
    beyond = op.Greater(n, 512 if dtype == torch.float64 else 128)
    return op.Where(beyond, torch.nan, polynomial(op.Where(beyond, 0, n)))


@orthogonal("hermite_polynomial_h")
def hermite_h(op: Builder, x: ir.Value, n: ir.Value) -> ir.Value:
    """special_hermite_polynomial_h(Tensor x, Tensor n) -> Tensor

    H_{k + 1} = 2 x H_k - 2 k H_{k - 1}
    """
    twice = op.Add(x, x)
    following = lambda k, value, before: op.Sub(op.Mul(twice, value), op.Mul(op.Mul(k, 2), before))  # noqa: E731
    return _up_to_limit(op, n, dtype_of(x), lambda n: recurrence(op, n, twice, following))


@orthogonal("hermite_polynomial_he")
def hermite_he(op: Builder, x: ir.Value, n: ir.Value) -> ir.Value:
    """special_hermite_polynomial_he(Tensor x, Tensor n) -> Tensor

    He_{k + 1} = x He_k - k He_{k - 1}
    """
    following = lambda k, value, before: op.Sub(op.Mul(x, value), op.Mul(k, before))  # noqa: E731
    return _up_to_limit(op, n, dtype_of(x), lambda n: recurrence(op, n, x, following))


@orthogonal("laguerre_polynomial_l")
def laguerre(op: Builder, x: ir.Value, n: ir.Value) -> ir.Value:
    """special_laguerre_polynomial_l(Tensor x, Tensor n) -> Tensor

    (k + 1) L_{k + 1} = (2 k + 1 - x) L_k - k L_{k - 1}, and 1 at zero.
    """
    first = op.Sub(1, x)

    def following(k: ir.Value, value: ir.Value, before: ir.Value) -> ir.Value:
        sum_ = op.Sub(op.Mul(op.Add(op.Mul(k, 2), first), value), op.Mul(k, before))
        return op.Div(sum_, op.Add(k, 1))

    at_zero = op.Equal(x, 0)
    return recurrence(op, op.Where(at_zero, 0, n), first, following)


@orthogonal("legendre_polynomial_p")
def legendre(op: Builder, x: ir.Value, n: ir.Value) -> ir.Value:
    """special_legendre_polynomial_p(Tensor x, Tensor n) -> Tensor

    (k + 1) P_{k + 1} = (2 k + 1) x P_k - k P_{k - 1}; 1 at one, (-1)^n at minus one.
    """

    def following(k: ir.Value, value: ir.Value, before: ir.Value) -> ir.Value:
        sum_ = op.Sub(op.Mul(op.Mul(op.Add(op.Mul(k, 2), 1), x), value), op.Mul(k, before))
        return op.Div(sum_, op.Add(k, 1))

    at_end = op.Equal(op.Abs(x), 1)
    inside = recurrence(op, op.Where(at_end, 0, n), x, following)
    return op.Where(op.Equal(x, -1), alternating(op, n, dtype_of(x)), inside)
