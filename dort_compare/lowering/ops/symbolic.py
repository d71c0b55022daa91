"""Numbers as values: what FX does with symbolic integers, floats and booleans becomes arithmetic on 0-d tensors.

They are int64, float64 and bool, as Python's own numbers, and a lowering computes what Python would.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering import sizes
from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import only
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import Dim, fake_of, shape_of
from dort_compare.scalars import traced_dtype

aten = torch.ops.aten
Number = bool | int | float | ir.Value


def is_float(number: Number) -> bool:
    """Whether a number of Python's, or the value that stands for one, is a float."""
    return isinstance(number, float) or (isinstance(number, ir.Value) and number.dtype == ir.DataType.DOUBLE)


def _promoted(op: Builder, *numbers: Number) -> list[ir.Value]:
    """The numbers as values of one dtype: float64 where one is a float, else int64."""
    return _values(op, torch.float64 if any(map(is_float, numbers)) else torch.int64, *numbers)


def _values(op: Builder, dtype: torch.dtype, *numbers: Number) -> list[ir.Value]:
    return [op.const(number, dtype) for number in numbers]


# Numbers read from tensors.


@lowering(aten.sym_size.int)
def sym_size(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    """sym_size.int(Tensor self, int dim) -> SymInt"""
    return op.const(op.size(x, dim))


@lowering(aten.sym_numel.default)
def sym_numel(op: Builder, x: ir.Value) -> ir.Value:
    """sym_numel(Tensor self) -> SymInt"""
    return op.Size(x)


@lowering(aten.sym_stride.int)
def sym_stride(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    """sym_stride.int(Tensor self, int dim) -> SymInt

    ONNX knows no strides: what torch traced is a number, or the product of the sizes of inner dimensions.
    """
    stride = fake_of(x).stride()[dim]
    if isinstance(stride, int):
        return op.const(stride)
    inner = shape_of(x)[dim % len(shape_of(x)) + 1 :]
    if str(stride) != str(math.prod(inner)):
        raise op.unsupported("a stride that is not the product of the sizes of inner dimensions")
    return op.const(sizes.product(op, (op.size(x, d - len(inner)) for d in range(len(inner)))))


@lowering(aten._local_scalar_dense.default)
def local_scalar_dense(op: Builder, x: ir.Value) -> ir.Value:
    """_local_scalar_dense(Tensor self) -> Scalar"""
    return only(op, x, traced_dtype(op.result))


# Arithmetic.


def _binary(onnx_operator: str) -> Callable[[Builder, Number, Number], ir.Value]:
    def lowered(op: Builder, a: Number, b: Number) -> ir.Value:
        return getattr(op, onnx_operator)(*_promoted(op, a, b))

    return lowered


for _target, _operator in {
    operator.add: "Add",
    operator.sub: "Sub",
    operator.mul: "Mul",
    operator.eq: "Equal",
    operator.lt: "Less",
    operator.le: "LessOrEqual",
    operator.gt: "Greater",
    operator.ge: "GreaterOrEqual",
    torch.sym_max: "Max",
    torch.sym_min: "Min",
}.items():
    lowering(_target)(_binary(_operator))


@lowering(operator.ne)
def ne(op: Builder, a: Number, b: Number) -> ir.Value:
    """a != b"""
    return op.Not(op.Equal(*_promoted(op, a, b)))


@lowering(torch.sym_sum)
def sym_sum(op: Builder, numbers: Sequence[Number]) -> ir.Value:
    """The sum of several, for which ONNX Runtime has no kernel in int64."""
    return functools.reduce(op.Add, _promoted(op, *numbers))


@lowering(operator.pos)
def pos(op: Builder, a: Number) -> ir.Value:
    """+a"""
    return _promoted(op, a)[0]


@lowering(operator.neg)
def neg(op: Builder, a: Number) -> ir.Value:
    """-a"""
    return op.Neg(*_promoted(op, a))


@lowering(operator.abs)
def absolute(op: Builder, a: Number) -> ir.Value:
    """abs(a)"""
    return op.Abs(*_promoted(op, a))


@lowering(operator.truediv)
def truediv(op: Builder, a: Number, b: Number) -> ir.Value:
    """a / b, of integers too a float"""
    return op.Div(*_values(op, torch.float64, a, b))


@lowering(operator.floordiv)
def floordiv(op: Builder, a: Dim, b: Dim) -> ir.Value:
    """a // b"""
    return op.const(sizes.floordiv(op, a, b))


@lowering(operator.mod)
def mod(op: Builder, a: Number, b: Number) -> ir.Value:
    """a % b, of the sign of b: ONNX's rule for integers, while that for floats is C's, the sign of a."""
    dividend, divisor = _promoted(op, a, b)
    if not is_float(dividend):
        return op.Mod(dividend, divisor)
    rest = op.Mod(dividend, divisor, fmod=1)
    return op.Where(op.Less(op.Mul(rest, divisor), 0), op.Add(rest, divisor), rest)


@lowering(operator.pow)
def power(op: Builder, a: Number, b: Number) -> ir.Value:
    """a ** b; integers are multiplied, for ONNX Runtime's Pow goes through float64."""
    if traced_dtype(op.result) == torch.float64:
        return op.Pow(*_values(op, torch.float64, a, b))
    return _natural_power(op, op.const(a), b)


def _natural_power(op: Builder, base: ir.Value, exponent: Number) -> ir.Value:
    """Multiplied by the square, the fourth power, ... as the bits of the exponent say: six, for int64 holds no more."""
    result = one = op.const(1)
    bits = 6 if isinstance(exponent, ir.Value) else int(exponent).bit_length()
    for bit in range(bits):
        if bit:
            base = op.Mul(base, base)
        if isinstance(exponent, ir.Value):
            is_set = op.Equal(op.BitwiseAnd(exponent, op.const(1 << bit)), 0)
            result = op.Mul(result, op.Where(is_set, one, base))
        elif int(exponent) >> bit & 1:
            result = base if result is one else op.Mul(result, base)
    return result


@lowering(operator.lshift)
def lshift(op: Builder, a: Dim, b: Dim) -> ir.Value:
    """a << b"""
    return op.Mul(op.const(a), _natural_power(op, op.const(2), b))


@lowering(operator.rshift)
def rshift(op: Builder, a: Dim, b: Dim) -> ir.Value:
    """a >> b, which rounds down"""
    if not isinstance(b, int):
        raise op.unsupported("a shift by a symbolic number")
    return op.const(sizes.floordiv(op, a, 1 << b))


def _bitwise(logical: str) -> Callable[[Builder, Number, Number], ir.Value]:
    def lowered(op: Builder, a: Number, b: Number) -> ir.Value:
        dtype = traced_dtype(op.result)
        return getattr(op, logical if dtype == torch.bool else f"Bitwise{logical}")(*_values(op, dtype, a, b))

    return lowered


for _target, _operator in {operator.and_: "And", operator.or_: "Or", operator.xor: "Xor"}.items():
    lowering(_target)(_bitwise(_operator))


# Between integers, floats and booleans.


@lowering(torch.sym_float)
def sym_float(op: Builder, a: Number) -> ir.Value:
    """float(a)"""
    return op.const(a, torch.float64)


@lowering(math.trunc)
def trunc(op: Builder, a: Number) -> ir.Value:
    """int(a), towards zero"""
    return op.const(a)


@lowering(math.floor)
def floor(op: Builder, a: Number) -> ir.Value:
    """The largest integer not above a"""
    return op.cast(op.Floor(*_values(op, torch.float64, a)), torch.int64) if is_float(a) else op.const(a)


@lowering(math.ceil)
def ceil(op: Builder, a: Number) -> ir.Value:
    """The smallest integer not below a"""
    return op.cast(op.Ceil(*_values(op, torch.float64, a)), torch.int64) if is_float(a) else op.const(a)


@lowering(builtins.round)
def rounded(op: Builder, a: Number, digits: int | None = None) -> ir.Value:
    """The nearest integer, of two as near the even one"""
    if digits is not None:
        raise op.unsupported("rounding to decimal digits, which Python does on the text of the number")
    return op.cast(op.Round(*_values(op, torch.float64, a)), torch.int64)


@lowering(torch.sym_not)
def sym_not(op: Builder, a: Number) -> ir.Value:
    """not a"""
    return op.Not(*_values(op, torch.bool, a))


@lowering(torch.sym_ite)
def sym_ite(op: Builder, condition: Number, a: Number, b: Number) -> ir.Value:
    """a if condition else b"""
    chosen = op.Where(*_values(op, torch.bool, condition), *_promoted(op, a, b))
    return op.cast(chosen, traced_dtype(op.result))


def _function(onnx_operator: str) -> Callable[[Builder, Number], ir.Value]:
    def lowered(op: Builder, a: Number) -> ir.Value:
        return getattr(op, onnx_operator)(*_values(op, torch.float64, a))

    return lowered


for _name in ("sqrt", "sin", "cos", "tanh"):  # of the others, ONNX Runtime has no kernels in float64
    lowering(getattr(torch, f"_sym_{_name}"))(_function(_name.capitalize()))
