"""Quotients rounded to integers, and what remains of them."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.arithmetic import div
from dort_compare.lowering.ops.operands import Operand, in_kernel_dtype, kernel_dtype, promoted
from dort_compare.lowering.ops.rounding import truncated
from dort_compare.lowering.ops.signs import with_sign
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of, fake_of, is_empty

aten = torch.ops.aten
prims = torch.ops.prims


@lowering(aten.fmod.Tensor, aten.fmod.Scalar, prims.fmod.default)
@in_kernel_dtype()
def fmod(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """fmod.Tensor(Tensor self, Tensor other) -> Tensor

    Of the sign of self. For integers from ONNX's modulus of the divisor's sign, since ONNX Runtime's other one goes
    through float64.
    """
    if dtype_of(x).is_floating_point:
        return op.Mod(x, y, fmod=1)
    modulus = _modulus(op, x, y)
    return op.Where(_other_sign(op, x, y, modulus), op.Sub(modulus, y), modulus)


@lowering(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor, prims.remainder.default)
@in_kernel_dtype()
def remainder(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """remainder.Tensor(Tensor self, Tensor other) -> Tensor

    Of the sign of other.
    """
    if not dtype_of(x).is_floating_point:
        return _modulus(op, x, y)
    rest = op.Mod(x, y, fmod=1)
    return op.Where(_other_sign(op, rest, y, rest), op.Add(rest, y), rest)


def _other_sign(op: Builder, x: ir.Value, y: ir.Value, rest: ir.Value) -> ir.Value:
    """Whether x and y are of different signs and leave a rest."""
    return op.And(op.Xor(op.Less(x, 0), op.Less(y, 0)), op.Not(op.Equal(rest, 0)))


def _modulus(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    return op.Mod(x, _without_minus_one(op, y))


def _without_minus_one(op: Builder, y: ir.Value) -> ir.Value:
    """1 in place of -1, by which the smallest integer cannot be divided: the processor traps; and of 0 where nothing is
    divided, which ONNX Runtime refuses all the same."""
    if is_empty(op.result):
        y = op.Where(op.Equal(y, 0), 1, y)
    return op.Where(op.Equal(y, -1), 1, y)


@lowering(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(op: Builder, x: ir.Value, y: Operand, rounding_mode: str | None) -> ir.Value:
    """div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor"""
    if rounding_mode is None:
        return div(op, x, y)
    if rounding_mode == "floor":
        return floor_divide(op, x, y)
    return _divided(op, x, y, _truncated_float, _truncated_integer)


@lowering(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(op: Builder, x: ir.Value, y: Operand) -> ir.Value:
    """floor_divide(Tensor self, Tensor other) -> Tensor"""
    return _divided(op, x, y, _floored_float, _floored_integer)


Step = Callable[[ir.Value], ir.Value]


def _divided(
    op: Builder, x: ir.Value, y: Operand, by_float: Callable[..., ir.Value], by_integer: Callable[..., ir.Value]
) -> ir.Value:
    """In half precision torch rounds after each step, but for a single divisor, which it keeps exact."""
    dtype = op.result.dtype
    wide = kernel_dtype(dtype)
    if not dtype.is_floating_point:
        x, y = promoted(op, promoted(op, (x, y), dtype), wide)
        return op.cast(by_integer(op, x, y), dtype)
    single = not isinstance(y, ir.Value) or all(size == "1" for size in map(str, fake_of(y).shape))
    (x,) = promoted(op, promoted(op, (x,), dtype), wide)
    (y,) = promoted(op, (y,) if single else promoted(op, (y,), dtype), wide)
    step: Step = (lambda value: value) if single else (lambda value: op.cast(op.cast(value, dtype), wide))
    return op.cast(by_float(op, x, y, step), dtype)


def _floored_integer(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """One less than the truncated quotient where that is negative and leaves a rest."""
    quotient = _truncated_integer(op, x, y)
    return op.Where(_other_sign(op, x, y, _modulus(op, x, y)), op.Sub(quotient, 1), quotient)


def _truncated_integer(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """By -1 it is -x, which wraps around."""
    return op.Where(op.Equal(y, -1), op.Neg(x), op.Div(x, _without_minus_one(op, y)))


def _floored_float(op: Builder, x: ir.Value, y: ir.Value, step: Step) -> ir.Value:
    """torch's ``div_floor_floating``, which is Python's: exact where the rounded quotient would pass an integer."""
    rest = op.Mod(x, y, fmod=1)
    below = step(op.Div(step(op.Sub(x, rest)), y))
    below = op.Where(_other_sign(op, rest, y, rest), step(op.Sub(below, 1)), below)
    floor = op.Floor(below)
    nearest = op.Where(op.Greater(step(op.Sub(below, floor)), 0.5), op.Add(floor, 1), floor)
    quotient = op.Div(x, y)
    return op.Where(op.Equal(y, 0), quotient, with_sign(op, op.Abs(nearest), quotient))


def _truncated_float(op: Builder, x: ir.Value, y: ir.Value, step: Step) -> ir.Value:
    return truncated(op, step(op.Div(x, y)))
