"""Element by element: arithmetic, comparisons, logic, activations and their derivatives, casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder, fake_of, is_symbolic_number
from dort_compare.lowering.precision import in_float32, in_int64, is_exact, opmath
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten
prims = torch.ops.prims
Operand = ir.Value | int | float | bool


def promoted(op: Builder, operands: tuple[Operand, ...], dtype: torch.dtype) -> tuple[ir.Value, ...]:
    """The operands as ONNX values of ``dtype``."""
    return tuple(op.cast(x, dtype) if isinstance(x, ir.Value) else op.const(x, dtype) for x in operands)


def compute_dtype(op: Builder, operands: tuple[Operand, ...]) -> torch.dtype:
    """The dtype in which torch computes: float32 where a half-precision result meets a number that half cannot hold."""
    dtype = op.result.dtype
    numbers = [x for x in operands if not isinstance(x, ir.Value) or is_symbolic_number(x)]
    is_held = all(not isinstance(number, ir.Value) and is_exact(number, dtype) for number in numbers)
    return dtype if is_held else opmath(dtype)


def arithmetic(op: Builder, operator: str, *operands: Operand) -> ir.Value:
    """One ONNX operator on promoted operands, its result in torch's dtype."""
    dtype = compute_dtype(op, operands)
    return op.cast(getattr(op, operator)(*promoted(op, operands, dtype)), op.result.dtype)


@lowering(aten.add.Tensor, aten.add.Scalar)
def add(op: Builder, x: ir.Value, y: Operand, alpha: int | float = 1) -> ir.Value:
    """add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"""
    if fake_of(x).dtype == op.result.dtype == torch.bool:
        x, y, factor = promoted(op, (x, y, alpha), torch.bool)
        return op.Or(x, y if alpha else op.And(y, factor))
    return _combined(op, "Add", x, y, alpha)


@lowering(aten.sub.Tensor, aten.sub.Scalar)
def sub(op: Builder, x: ir.Value, y: Operand, alpha: int | float = 1) -> ir.Value:
    """sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"""
    return _combined(op, "Sub", x, y, alpha)


def _combined(op: Builder, operator: str, x: ir.Value, y: Operand, alpha: int | float) -> ir.Value:
    """x + alpha y or x - alpha y, rounded once."""
    if not isinstance(y, ir.Value) and not isinstance(alpha, ir.Value):
        return arithmetic(op, operator, x, y * alpha)
    if alpha == 1:
        return arithmetic(op, operator, x, y)
    x, y, factor = promoted(op, (x, y, alpha), opmath(op.result.dtype))
    return op.cast(getattr(op, operator)(x, op.Mul(y, factor)), op.result.dtype)


@lowering(aten.mul.Tensor, aten.mul.Scalar)
def mul(op: Builder, x: ir.Value, y: Operand) -> ir.Value:
    """mul.Tensor(Tensor self, Tensor other) -> Tensor"""
    if op.result.dtype == torch.bool:
        return op.And(*promoted(op, (x, y), torch.bool))
    return arithmetic(op, "Mul", x, y)


@lowering(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor, prims.div.default)
def div(op: Builder, x: ir.Value, y: Operand) -> ir.Value:
    """div.Tensor(Tensor self, Tensor other) -> Tensor"""
    return arithmetic(op, "Div", x, y)


def _unary(operator: str) -> Callable[[Builder, ir.Value], ir.Value]:
    """A lowering onto one ONNX operator; integers are computed in the floating dtype that torch promotes them to."""

    @in_float32
    def lowered(op: Builder, x: ir.Value) -> ir.Value:
        if not fake_of(x).dtype.is_floating_point:
            x = op.cast(x, op.result.dtype)
        return getattr(op, operator)(x)

    return lowered


for _target, _operator in {
    aten.cos.default: "Cos",
    aten.erf.default: "Erf",
    aten.exp.default: "Exp",
    aten.log.default: "Log",
    aten.reciprocal.default: "Reciprocal",
    aten.sigmoid.default: "Sigmoid",
    aten.sin.default: "Sin",
    aten.sqrt.default: "Sqrt",
    aten.tanh.default: "Tanh",
}.items():
    lowering(_target)(_unary(_operator))


@lowering(aten.neg.default)
@in_int64
def neg(op: Builder, x: ir.Value) -> ir.Value:
    """neg(Tensor self) -> Tensor"""
    return op.Neg(x)


@lowering(aten.relu.default)
@in_int64
def relu(op: Builder, x: ir.Value) -> ir.Value:
    """relu(Tensor self) -> Tensor"""
    return op.Relu(x) if fake_of(x).dtype.is_floating_point else op.Max(x, 0)


@lowering(aten.abs.default)
@in_int64
def absolute(op: Builder, x: ir.Value) -> ir.Value:
    """abs(Tensor self) -> Tensor"""
    return op.Abs(x)


@lowering(aten.isnan.default)
@in_float32
def isnan(op: Builder, x: ir.Value) -> ir.Value:
    """isnan(Tensor self) -> Tensor"""
    return op.IsNaN(op.cast(x, torch.float32) if not fake_of(x).dtype.is_floating_point else x)


@lowering(aten.clamp.default)
def clamp(op: Builder, x: ir.Value, min: int | float | None = None, max: int | float | None = None) -> ir.Value:
    """clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor

    By comparison and choice, which NaN passes unchanged.
    """
    dtype = op.result.dtype
    x = op.cast(x, dtype)
    if min is not None:
        low = op.const(min, dtype)
        x = op.Where(op.Less(x, low), low, x)
    if max is not None:
        high = op.const(max, dtype)
        x = op.Where(op.Greater(x, high), high, x)
    return x


@lowering(aten.rsqrt.default)
@in_float32
def rsqrt(op: Builder, x: ir.Value) -> ir.Value:
    """rsqrt(Tensor self) -> Tensor"""
    return op.Reciprocal(op.Sqrt(op.cast(x, opmath(op.result.dtype))))


@lowering(aten.pow.Tensor_Scalar)
@in_float32
def power(op: Builder, x: ir.Value, exponent: int | float) -> ir.Value:
    """pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor

    Integers are multiplied, which wraps around where ONNX Runtime's Pow saturates; square roots are taken as such,
    which differs from Pow at -0 and -inf.
    """
    dtype = opmath(op.result.dtype)
    x = op.cast(x, dtype)
    if exponent in (1, 2, 3) or (exponent > 0 and not dtype.is_floating_point):
        return _multiplied(op, x, int(exponent))
    if exponent == 0.5:
        return op.Sqrt(x)
    if exponent == -0.5:
        return op.Reciprocal(op.Sqrt(x))
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


@lowering(aten.silu.default)
@in_float32
def silu(op: Builder, x: ir.Value) -> ir.Value:
    """silu(Tensor self) -> Tensor"""
    return op.Mul(x, op.Sigmoid(x))


@lowering(aten.silu_backward.default)
@in_float32
def silu_backward(op: Builder, grad: ir.Value, x: ir.Value) -> ir.Value:
    """silu_backward(Tensor grad_output, Tensor self) -> Tensor

    d/dx of x s(x) is s (1 + x (1 - s)), with s the sigmoid of x.
    """
    one = op.const(1, opmath(op.result.dtype))
    s = op.Sigmoid(x)
    return op.Mul(grad, op.Mul(s, op.Add(one, op.Mul(x, op.Sub(one, s)))))


@lowering(aten.sigmoid_backward.default)
@in_float32
def sigmoid_backward(op: Builder, grad: ir.Value, y: ir.Value) -> ir.Value:
    """sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor"""
    return op.Mul(grad, op.Mul(y, op.Sub(op.const(1, opmath(op.result.dtype)), y)))


@lowering(aten.tanh_backward.default)
@in_float32
def tanh_backward(op: Builder, grad: ir.Value, y: ir.Value) -> ir.Value:
    """tanh_backward(Tensor grad_output, Tensor output) -> Tensor"""
    return op.Mul(grad, op.Sub(op.const(1, opmath(op.result.dtype)), op.Mul(y, y)))


@lowering(aten.threshold_backward.default)
def threshold_backward(op: Builder, grad: ir.Value, x: ir.Value, threshold: int | float) -> ir.Value:
    """threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor"""
    dtype = op.result.dtype
    passed = op.LessOrEqual(x, op.const(threshold, dtype))
    return op.Where(passed, op.const(0, dtype), grad)


def _comparison(operator: str, negated: bool = False) -> Callable[[Builder, ir.Value, Operand], ir.Value]:
    def lowered(op: Builder, x: ir.Value, y: Operand) -> ir.Value:
        other = fake_of(y) if isinstance(y, ir.Value) else y
        dtype = torch.result_type(fake_of(x), other)
        if dtype == torch.bool:
            dtype = torch.uint8
        result = getattr(op, operator)(*promoted(op, (x, y), dtype))
        return op.Not(result) if negated else result

    return lowered


for _name, _operator, _negated in [
    ("eq", "Equal", False),
    ("ne", "Equal", True),
    ("lt", "Less", False),
    ("le", "LessOrEqual", False),
    ("gt", "Greater", False),
    ("ge", "GreaterOrEqual", False),
]:
    _packet = getattr(aten, _name)
    lowering(_packet.Tensor, _packet.Scalar)(_comparison(_operator, _negated))


def _logic(operator: str, bitwise: str | None) -> Callable[..., ir.Value]:
    """On bools the logical operator; on integers the bitwise one, or their truth values where there is none."""

    def lowered(op: Builder, *operands: Operand) -> ir.Value:
        if op.result.dtype == torch.bool:
            return getattr(op, operator)(*promoted(op, operands, torch.bool))
        return getattr(op, str(bitwise))(*promoted(op, operands, op.result.dtype))

    return lowered


for _targets, _operator, _bitwise in [
    ((aten.bitwise_and.Tensor, aten.bitwise_and.Scalar), "And", "BitwiseAnd"),
    ((aten.bitwise_or.Tensor, aten.bitwise_or.Scalar), "Or", "BitwiseOr"),
    ((aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar), "Xor", "BitwiseXor"),
    ((aten.bitwise_not.default,), "Not", "BitwiseNot"),
    ((aten.logical_and.default,), "And", None),
    ((aten.logical_or.default,), "Or", None),
    ((aten.logical_xor.default,), "Xor", None),
    ((aten.logical_not.default,), "Not", None),
]:
    lowering(*_targets)(_logic(_operator, _bitwise))


@lowering(aten.where.self, prims.where.default)
def where(op: Builder, condition: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    """where.self(Tensor condition, Tensor self, Tensor other) -> Tensor"""
    return _chosen(op, op.cast(condition, torch.bool), x, y)


@lowering(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(op: Builder, x: ir.Value, mask: ir.Value, value: Operand) -> ir.Value:
    """masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor"""
    return _chosen(op, mask, value, x)


def _chosen(op: Builder, condition: ir.Value, x: Operand, y: Operand) -> ir.Value:
    """Where; booleans are chosen as bytes, for which ONNX Runtime has a kernel."""
    dtype = op.result.dtype
    x, y = promoted(op, (x, y), dtype)
    if dtype == torch.bool:
        x, y = promoted(op, (x, y), torch.uint8)
    return op.cast(op.Where(condition, x, y), dtype)


@lowering(aten._to_copy.default, prims.convert_element_type.default, aten.clone.default)
def to_copy(op: Builder, x: ir.Value, *_: Any, **__: Any) -> ir.Value:
    """_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, ...) -> Tensor"""
    return op.cast(x, op.result.dtype)


@lowering(aten.detach.default, aten.alias.default, aten.lift_fresh.default, aten.lift_fresh_copy.default)
def same(op: Builder, x: ir.Value) -> ir.Value:
    """detach(Tensor(a) self) -> Tensor(a)"""
    return x
