"""Polynomials in one value, by Horner's rule and by Clenshaw's."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from dort_compare.lowering.builder import Builder

Ratio = tuple[Sequence[float], Sequence[float]]
"""The coefficients of a numerator and of a denominator."""


def polynomial(op: Builder, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """c[0] x^n + c[1] x^(n - 1) + ... + c[n], for two coefficients or more."""
    leading, *others = coefficients
    value = x if leading == 1 else op.Mul(x, leading)
    for coefficient in others[:-1]:
        value = op.Mul(op.Add(value, coefficient), x)
    return op.Add(value, others[-1])


def rational(op: Builder, x: ir.Value, ratio: Ratio) -> ir.Value:
    """The quotient of two polynomials."""
    numerator, denominator = ratio
    return op.Div(polynomial(op, x, numerator), polynomial(op, x, denominator))


def chebyshev(op: Builder, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """c[0] T_n(x / 2) + ... + c[n - 1] T_1(x / 2) + c[n] / 2, as Cephes orders its coefficients."""
    leading, *others = coefficients
    before: ir.Value | float = 0.0
    value: ir.Value | float = leading
    last: ir.Value | float = 0.0
    for coefficient in others:
        last, before = before, value
        value = op.Add(op.Sub(op.Mul(x, before), last), coefficient)
    return op.Mul(op.Sub(value, last), 0.5)
