"""The regularized incomplete gamma functions, computed in float64, by the ways of Cephes' igam.c as torch goes them."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.incomplete_gamma_terms import lower, upper, upper_of_small
from dort_compare.lowering.ops.temme import expanded, is_near
from dort_compare.lowering.precision import in_float64
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten
prims = torch.ops.prims


@lowering(aten.igamma.default, prims.igamma.default)
@in_float64
def igamma(op: Builder, a: ir.Value, x: ir.Value) -> ir.Value:
    """igamma(Tensor self, Tensor other) -> Tensor"""
    near = is_near(op, a, x)
    is_upper = op.And(op.Greater(x, 1.0), op.Greater(x, a))
    lower_value = lower(op, *_where(op, op.And(_is_inside(op, a, x), op.Not(op.Or(near, is_upper))), a, x, 0.0))
    upper_value = upper(op, *_where(op, op.And(_is_inside(op, a, x), op.And(is_upper, op.Not(near))), a, x, 30.0))
    value = op.Where(is_upper, op.Sub(1.0, upper_value), lower_value)
    value = op.Where(near, expanded(op, *_where(op, near, a, x, 1.0), upper=False), value)
    return _at_ends(op, a, x, value, at_zero=0.0)


@lowering(aten.igammac.default, prims.igammac.default)
@in_float64
def igammac(op: Builder, a: ir.Value, x: ir.Value) -> ir.Value:
    """igammac(Tensor self, Tensor other) -> Tensor"""
    near, beyond = is_near(op, a, x), op.Greater(x, 1.1)
    by_series = op.Where(op.LessOrEqual(x, 0.5), op.Div(-0.4, op.Log(x)), op.Mul(x, 1.1))
    is_lower = op.Less(op.Where(beyond, x, by_series), a)
    elsewhere = op.And(_is_inside(op, a, x), op.Not(near))
    is_upper, is_small = (op.And(op.And(elsewhere, op.Not(is_lower)), each) for each in (beyond, op.Not(beyond)))
    value = op.Sub(1.0, lower(op, *_where(op, op.And(elsewhere, is_lower), a, x, 0.0)))
    value = op.Where(is_upper, upper(op, *_where(op, is_upper, a, x, 30.0)), value)
    value = op.Where(is_small, upper_of_small(op, *_where(op, is_small, a, x, 1.0)), value)
    value = op.Where(near, expanded(op, *_where(op, near, a, x, 1.0), upper=True), value)
    return _at_ends(op, a, x, value, at_zero=1.0)


def _is_inside(op: Builder, a: ir.Value, x: ir.Value) -> ir.Value:
    """Where neither is at an end of what it may be, or NaN."""
    inside = [op.And(op.Greater(each, 0.0), op.Less(each, math.inf)) for each in (a, x)]
    return op.And(*inside)


def _where(op: Builder, there: ir.Value, a: ir.Value, x: ir.Value, other: float) -> tuple[ir.Value, ir.Value]:
    """Both where the formula is used, and 1 and a number elsewhere, of which no loop takes long."""
    return op.Where(there, a, 1.0), op.Where(there, x, other)


def _at_ends(op: Builder, a: ir.Value, x: ir.Value, value: ir.Value, at_zero: float) -> ir.Value:
    """With the limits at 0 and infinity, which torch takes even if the other is NaN, and NaN below 0."""
    nan, beginning = op.const(math.nan, torch.float64), op.const(at_zero, torch.float64)
    value = op.Where(op.Or(op.IsNaN(a), op.IsNaN(x)), nan, value)
    value = op.Where(op.IsInf(x), 1 - at_zero, value)
    value = op.Where(op.IsInf(a), op.Where(op.IsInf(x), nan, beginning), value)
    value = op.Where(op.Equal(x, 0.0), beginning, value)
    value = op.Where(op.Equal(a, 0.0), op.Where(op.Greater(x, 0.0), 1 - at_zero, nan), value)
    return op.Where(op.Or(op.Less(a, 0.0), op.Less(x, 0.0)), nan, value)
