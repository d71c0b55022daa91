"""Powers."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.arithmetic import mul
from dort_compare.lowering.ops.operands import Number, Operand, in_kernel_dtype
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import fake_of

aten = torch.ops.aten
prims = torch.ops.prims


@lowering(aten.pow.Tensor_Scalar)
@in_float32
def pow_number(op: Builder, x: ir.Value, exponent: Operand) -> ir.Value:
    """pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor

    Integers are multiplied, which wraps around where ONNX Runtime's Pow saturates; square roots are taken as such,
    which differs from Pow at -0 and -inf; but not of float16 on the CPU, of which torch's kernel takes powers.
    """
    dtype = opmath(op.result.dtype)
    if isinstance(exponent, ir.Value):
        if not dtype.is_floating_point:
            raise op.unsupported("integers to a symbolic power")
        return op.Pow(op.cast(x, dtype), op.cast(exponent, dtype))
    if exponent < 0 and not dtype.is_floating_point:
        raise op.unsupported("torch takes no integers to the power of negative ones")
    x = op.cast(x, dtype)
    if exponent in (1, 2, 3) or (exponent > 0 and not dtype.is_floating_point):
        return _multiplied(op, x, int(exponent))
    if abs(exponent) == 0.5 and (op.on_cuda or op.result.dtype != torch.float16):
        return op.Sqrt(x) if exponent > 0 else op.Reciprocal(op.Sqrt(x))
    if exponent == 0:
        return op.Expand(op.const(1, dtype), op.Shape(x))
    return op.Pow(x, op.const(exponent, dtype))


def _multiplied(op: Builder, x: ir.Value, times: int) -> ir.Value:
    """x to the power of a positive integer, by squaring."""
    if times == 1:
        return x
    half = _multiplied(op, x, times // 2)
    square = op.Mul(half, half)
    return op.Mul(square, x) if times % 2 else square


@lowering(aten.square.default)
def square(op: Builder, x: ir.Value) -> ir.Value:
    """square(Tensor self) -> Tensor"""
    return op.cast(pow_number(op, x, 2), op.result.dtype)


@lowering(aten.pow.Tensor_Tensor, prims.pow.default)
def power(op: Builder, x: ir.Value, exponent: ir.Value) -> ir.Value:
    """pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor"""
    if not op.result.dtype.is_floating_point:
        raise op.unsupported("integer powers of a tensor's elements wrap around in torch, ONNX Runtime's saturate")
    return _power(op, x, exponent)


@lowering(aten.pow.Scalar)
def power_of_number(op: Builder, base: Number, exponent: ir.Value) -> ir.Value:
    """pow.Scalar(Scalar self, Tensor exponent) -> Tensor"""
    if op.result.dtype.is_floating_point:
        return _power(op, base, exponent)
    squares = _squares(int(base))
    if squares is None:
        raise op.unsupported(f"powers of {base} wrap around in torch, ONNX Runtime's saturate")
    return op.cast(_integer_power(op, squares, op.cast(exponent, torch.int64)), op.result.dtype)


def _squares(base: int) -> list[int] | None:
    """base, base^2, base^4, ... modulo 2^64, until they stay 0 or 1; None where that takes long, as of odd numbers."""
    squares = [_wrapped(base)]
    while squares[-1] not in (0, 1):
        if len(squares) > 6:
            return None
        squares.append(_wrapped(squares[-1] ** 2))
    return squares


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _integer_power(op: Builder, squares: list[int], exponent: ir.Value) -> ir.Value:
    """The product of those squares whose bit is set in the exponent.

    Where the last square is 0, an exponent beyond the bits before it gives 0, and so does a negative one.
    """
    *factors, last = squares
    result = op.Expand(op.const(1, torch.int64), op.Shape(exponent))
    for bit, factor in enumerate(factors):
        is_set = op.Not(op.Equal(op.BitwiseAnd(exponent, op.const(2**bit, torch.int64)), 0))
        result = op.Mul(result, op.Where(is_set, op.const(factor, torch.int64), op.const(1, torch.int64)))
    if last == 1:
        return result
    held = op.And(op.GreaterOrEqual(exponent, 0), op.Less(exponent, op.const(2 ** len(factors), torch.int64)))
    return op.Where(held, result, op.const(0, torch.int64))


@in_kernel_dtype(exact_numbers=True)
def _power(op: Builder, x: ir.Value, exponent: ir.Value) -> ir.Value:
    return op.Pow(x, exponent)


@lowering(aten.hypot.default, prims.hypot.default)
@in_kernel_dtype()
def hypot(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """hypot(Tensor self, Tensor other) -> Tensor

    l sqrt(1 + (s / l)^2) with l the larger and s the smaller magnitude, which does not overflow before its time.
    """
    x, y = op.Abs(x), op.Abs(y)
    large, small = op.Max(x, y), op.Min(x, y)
    ratio = op.Div(small, op.Where(op.Equal(large, 0), 1, large))
    length = op.Mul(large, op.Sqrt(op.Add(1, op.Mul(ratio, ratio))))
    infinite = op.Or(op.Equal(x, math.inf), op.Equal(y, math.inf))
    return op.Where(infinite, math.inf, length)


@lowering(aten.frexp.Tensor, prims.frexp.default)
def frexp(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)

    x = mantissa 2^exponent with the mantissa in [1/2, 1); what is 0 or not finite has the exponent 0. Its guess may be
    one off. Scaled by powers of two off a table, for those that ONNX Runtime's CUDA provider computes are rounded.
    """
    mantissa, exponent = op.result
    if mantissa.dtype == torch.float64:
        raise op.unsupported("its powers of two leave the range of float64")
    op.computing_in(torch.float64)
    x = op.cast(x, torch.float64)
    size = op.Abs(x)
    regular = op.And(op.Greater(size, 0), op.Less(size, math.inf))
    guess = _guessed_exponent(op, op.Where(regular, size, 1))
    scaled = op.Mul(size, _one_over_two_to(op, guess))
    above, below = op.GreaterOrEqual(scaled, 1), op.Less(scaled, 0.5)
    missed = op.Sub(op.cast(above, torch.int64), op.cast(below, torch.int64))
    power = op.Where(regular, op.Add(guess, missed), 0)
    return op.cast(op.Mul(x, _one_over_two_to(op, power)), mantissa.dtype), op.cast(power, exponent.dtype)


def _guessed_exponent(op: Builder, size: ir.Value) -> ir.Value:
    """By the logarithm, which may miss it by one next to a power of two."""
    return op.cast(op.Add(op.Floor(op.Div(op.Log(size), math.log(2))), 1), torch.int64)


_EXPONENTS = range(-149, 130)
"""Of all float32 numbers, one more at either end."""


def _one_over_two_to(op: Builder, exponent: ir.Value) -> ir.Value:
    powers = op.const([2.0**-e for e in _EXPONENTS], torch.float64)
    return op.Gather(powers, op.Sub(exponent, _EXPONENTS.start), axis=0)


@lowering(aten.ldexp.Tensor)
def ldexp(op: Builder, x: ir.Value, exponent: ir.Value) -> ir.Value:
    """ldexp.Tensor(Tensor self, Tensor other) -> Tensor

    A float x is moved by an integer exponent, in int32, in its own dtype, whatever 2^other is; else it is x 2^other,
    the power in the dtype that torch gives it: float32, or that of a floating ``other``.
    """
    if fake_of(x).dtype.is_floating_point and not fake_of(exponent).dtype.is_floating_point:
        return _moved_by(op, x, op.cast(op.cast(exponent, torch.int32), torch.int64))
    dtype = torch.result_type(2.0, fake_of(exponent))
    two_to = op.Pow(op.const(2, opmath(dtype)), op.cast(exponent, opmath(dtype)))
    return mul(op, x, op.cast(two_to, dtype))


_STEP = 700
"""By so many powers of two what float64 holds is moved at once: three times, from its smallest to its largest."""


def _moved_by(op: Builder, x: ir.Value, exponent: ir.Value) -> ir.Value:
    """Exactly, but for the rounding to the dtype of the result, and once more of what is subnormal in float64."""
    if op.result.dtype != torch.float64:
        op.computing_in(torch.float64)
    moved = op.cast(x, torch.float64)
    powers = op.const([2.0**e for e in range(-_STEP, _STEP + 1)], torch.float64)
    for _ in range(3 if op.result.dtype == torch.float64 else 1):
        step = op.Where(op.Less(exponent, -_STEP), -_STEP, op.Where(op.Greater(exponent, _STEP), _STEP, exponent))
        moved = op.Mul(moved, op.Gather(powers, op.Add(step, _STEP), axis=0))
        exponent = op.Sub(exponent, step)
    return op.cast(moved, op.result.dtype)
