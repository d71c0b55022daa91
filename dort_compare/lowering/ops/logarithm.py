"""Logarithms, and what torch computes by way of them so that nothing overflows or cancels."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.elementary import elementary, exp2
from dort_compare.lowering.ops.operands import Number, in_kernel_dtype
from dort_compare.lowering.ops.polynomial import polynomial
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of

aten = torch.ops.aten
prims = torch.ops.prims


@elementary(aten.log1p.default, prims.log1p.default)
def log1p(op: Builder, x: ir.Value) -> ir.Value:
    """log1p(Tensor self) -> Tensor

    log(u) with u = 1 + x as rounded, and what the rounding left out: (x - (u - 1)) / u. x itself where u is 1.
    """
    u = op.Add(x, 1)
    kept = op.Sub(u, 1)
    left = op.Where(op.Equal(kept, x), 0, op.Div(op.Sub(x, kept), u))
    return op.Where(op.Greater(op.Abs(kept), 0), op.Add(op.Log(u), left), x)


_ATANH = (0.28178335086734545, 0.27960602747171467, 0.40024910279538121, 0.66666314682128475, 2.0)
"""2 atanh(s) / s as a polynomial in s^2, off by 4e-9 of it at most for s up to 1/3 (by Remez' algorithm)."""


def log1p_of_fraction(op: Builder, x: ir.Value) -> ir.Value:
    """log(1 + x) for x from 0 to 1; in float32 as 2 atanh(s) with s = x / (2 + x), faster than by ONNX's Log."""
    if dtype_of(x) != torch.float32:
        return log1p(op, x)
    s = op.Div(x, op.Add(x, 2))
    return op.Mul(s, polynomial(op, op.Mul(s, s), _ATANH))


@elementary(aten.log2.default, prims.log2.default)
def log2(op: Builder, x: ir.Value) -> ir.Value:
    """log2(Tensor self) -> Tensor"""
    return _log_to_base(op, x, 2)


@elementary(aten.log10.default, prims.log10.default)
def log10(op: Builder, x: ir.Value) -> ir.Value:
    """log10(Tensor self) -> Tensor"""
    return _log_to_base(op, x, 10)


def _log_to_base(op: Builder, x: ir.Value, base: int) -> ir.Value:
    """log(x) / log(base); the integer itself for powers of the base, which the quotient may miss by a rounding."""
    quotient = op.Div(op.Log(x), math.log(base))
    nearest = op.Round(quotient)
    return op.Where(op.Equal(op.Pow(op.const(base, dtype_of(x)), nearest), x), nearest, quotient)


@lowering(aten.logaddexp.default)
@in_kernel_dtype()
def logaddexp(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """logaddexp(Tensor self, Tensor other) -> Tensor

    max(x, y) + log(1 + exp(-|x - y|)), the difference 0 where both are the same infinity.
    """
    return op.Add(op.Max(x, y), log1p_of_fraction(op, op.Exp(op.Neg(_distance(op, x, y)))))


@lowering(aten.logaddexp2.default)
@in_kernel_dtype()
def logaddexp2(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """logaddexp2(Tensor self, Tensor other) -> Tensor"""
    bits = op.Div(log1p_of_fraction(op, exp2(op, op.Neg(_distance(op, x, y)))), math.log(2))
    return op.Add(op.Max(x, y), bits)


def _distance(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    return op.Abs(op.Where(op.Equal(x, y), 0, op.Sub(x, y)))


@lowering(aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other)
@in_kernel_dtype(exact_numbers=True)
def xlogy(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """xlogy.Tensor(Tensor self, Tensor other) -> Tensor

    x log(y); 0 where x is 0, unless y is NaN.
    """
    return _product_with_log(op, x, y, op.Log(y))


@lowering(aten.special_xlog1py.default, aten.special_xlog1py.self_scalar, aten.special_xlog1py.other_scalar)
@in_kernel_dtype(exact_numbers=True)
def xlog1py(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """special_xlog1py(Tensor self, Tensor other) -> Tensor

    x log(1 + y); 0 where x is 0, unless y is NaN.
    """
    return _product_with_log(op, x, y, log1p(op, y))


def _product_with_log(op: Builder, x: ir.Value, y: ir.Value, log: ir.Value) -> ir.Value:
    vanishes = op.And(op.Equal(x, 0), op.Not(op.IsNaN(y)))
    return op.Where(vanishes, 0, op.Mul(x, log))


@lowering(aten.special_entr.default)
@in_kernel_dtype()
def entr(op: Builder, x: ir.Value) -> ir.Value:
    """special_entr(Tensor self) -> Tensor

    -x log(x); 0 at 0, -inf below.
    """
    entropy = op.Where(op.Equal(x, 0), 0, op.Neg(op.Mul(x, op.Log(x))))
    return op.Where(op.Less(x, 0), -math.inf, entropy)


@lowering(aten.logit.default)
def logit(op: Builder, x: ir.Value, eps: Number | None = None) -> ir.Value:
    """logit(Tensor self, float? eps=None) -> Tensor

    log(x / (1 - x)), of x clamped to [eps, 1 - eps], unless eps is negative. Both ends are rounded to half precision,
    but for CUDA.
    """
    return in_kernel_dtype(exact_numbers=op.on_cuda)(_logit)(op, x, _unless_negative(op, eps))


def _logit(op: Builder, x: ir.Value, eps: ir.Value | None) -> ir.Value:
    if eps is not None:
        highest = _counterpart(op, eps)
        x = op.Where(op.Less(x, eps), eps, op.Where(op.Greater(x, highest), highest, x))
    return op.Log(op.Div(x, op.Sub(1, x)))


@lowering(aten.logit_backward.default)
def logit_backward(op: Builder, grad: ir.Value, x: ir.Value, eps: Number | None = None) -> ir.Value:
    """logit_backward(Tensor grad_output, Tensor self, float? eps=None) -> Tensor

    grad / (x (1 - x)); outside [eps, 1 - eps] 0, outside [0, 1] NaN where there is no eps. The ends are those of
    ``logit``.
    """
    return in_kernel_dtype(exact_numbers=op.on_cuda)(_logit_backward)(op, grad, x, _unless_negative(op, eps))


def _logit_backward(op: Builder, grad: ir.Value, x: ir.Value, eps: ir.Value | None) -> ir.Value:
    lowest, substitute = (op.const(0, dtype_of(x)), math.nan) if eps is None else (eps, 0.0)
    outside = op.Or(op.Less(x, lowest), op.Greater(x, _counterpart(op, lowest)))
    return op.Where(outside, substitute, op.Div(grad, op.Mul(x, op.Sub(1, x))))


def _unless_negative(op: Builder, eps: Number | None) -> Number | None:
    is_known = eps is not None and not isinstance(eps, ir.Value)
    return None if is_known and torch.tensor(eps, dtype=op.result.dtype) < 0 else eps


def _counterpart(op: Builder, eps: ir.Value) -> ir.Value:
    """1 - eps, rounded to torch's dtype, but for CUDA."""
    highest = op.Sub(1, eps)
    return highest if op.on_cuda else op.cast(op.cast(highest, op.result.dtype), dtype_of(highest))
