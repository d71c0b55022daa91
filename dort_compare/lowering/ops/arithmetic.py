"""Sums, differences, products and quotients."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.dtypes import HALF
from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import Number, Operand, arithmetic, promoted, rounded, scaled
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering, lowering_by_name

aten = torch.ops.aten
prims = torch.ops.prims


@lowering(aten.add.Tensor, aten.add.Scalar, prims.add.default)
def add(op: Builder, x: Operand, y: Operand, alpha: Number = 1) -> ir.Value:
    """add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor

    Either operand may be a number: torch.add(2, x) reaches a backend as it is written.
    """
    if op.result.dtype == torch.bool:
        x, y, factor = promoted(op, (x, y, alpha), torch.bool)
        return op.Or(x, y if alpha else op.And(y, factor))
    return _combined(op, "Add", x, y, alpha)


@lowering(aten.sub.Tensor, aten.sub.Scalar, prims.sub.default)
def sub(op: Builder, x: ir.Value, y: Operand, alpha: Number = 1) -> ir.Value:
    """sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"""
    return _combined(op, "Sub", x, y, alpha)


@lowering(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(op: Builder, x: ir.Value, y: Operand, alpha: Number = 1) -> ir.Value:
    """rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor

    other - alpha self
    """
    return _combined(op, "Sub", y, x, alpha)


def _combined(op: Builder, operator: str, x: Operand, y: Operand, alpha: Operand) -> ir.Value:
    """x + alpha y or x - alpha y, rounded once.

    In half precision torch's kernels for CPUs round numbers and alpha to it first; those for CUDA keep them in float32.
    """
    if op.result.dtype in HALF and not op.on_cuda:
        x, y, alpha = (rounded(op, each, op.result.dtype) for each in (x, y, alpha))
    if not isinstance(y, ir.Value) and not isinstance(alpha, ir.Value):
        return arithmetic(op, operator, x, y * alpha)
    if alpha == 1:
        return arithmetic(op, operator, x, y)
    x, y, factor = promoted(op, (x, y, alpha), opmath(op.result.dtype))
    return op.cast(getattr(op, operator)(x, op.Mul(y, factor)), op.result.dtype)


@lowering(aten.mul.Tensor, aten.mul.Scalar, prims.mul.default)
def mul(op: Builder, x: ir.Value, y: Operand) -> ir.Value:
    """mul.Tensor(Tensor self, Tensor other) -> Tensor"""
    if op.result.dtype == torch.bool:
        return op.And(*promoted(op, (x, y), torch.bool))
    return arithmetic(op, "Mul", x, y)


@lowering(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor, prims.div.default)
def div(op: Builder, x: ir.Value, y: Operand) -> ir.Value:
    """div.Tensor(Tensor self, Tensor other) -> Tensor

    prims.div divides integers as C does, towards zero.
    """
    return arithmetic(op, "Div", x, y)


@lowering(aten.addcmul.default)
@in_float32
def addcmul(op: Builder, x: ir.Value, tensor1: ir.Value, tensor2: ir.Value, value: Number = 1) -> ir.Value:
    """addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor"""
    x, tensor1, tensor2 = promoted(op, (x, tensor1, tensor2), opmath(op.result.dtype))
    return op.Add(x, op.Mul(scaled(op, tensor1, value), tensor2))


@lowering(aten.addcdiv.default)
@in_float32
def addcdiv(op: Builder, x: ir.Value, tensor1: ir.Value, tensor2: ir.Value, value: Number = 1) -> ir.Value:
    """addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor"""
    x, tensor1, tensor2 = promoted(op, (x, tensor1, tensor2), opmath(op.result.dtype))
    return op.Add(x, op.Div(scaled(op, tensor1, value), tensor2))


@lowering_by_name("prims::fma")
def fma(op: Builder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """fma(Tensor a, Tensor b, Tensor c) -> Tensor, which inductor brings along

    Products are exact in a dtype twice as wide, which float64 has not: there they are rounded.
    """
    dtype = op.result.dtype
    wide = torch.float32 if dtype in HALF else torch.float64
    if wide != dtype:
        op.computing_in(wide)
    a, b, c = promoted(op, (a, b, c), wide)
    return op.cast(op.Add(op.Mul(a, b), c), dtype)


@lowering(aten.lerp.Scalar, aten.lerp.Tensor)
@in_float32
def lerp(op: Builder, start: ir.Value, end: ir.Value, weight: Operand) -> ir.Value:
    """lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor

    From the nearer end, as torch does: start + w (end - start) where |w| < 1/2, else end - (end - start) (1 - w).
    """
    dtype = opmath(op.result.dtype)
    start, end = promoted(op, (start, end), dtype)
    distance = op.Sub(end, start)
    if not isinstance(weight, ir.Value):
        if abs(weight) < 0.5:
            return op.Add(start, op.Mul(distance, op.const(weight, dtype)))
        return op.Sub(end, op.Mul(distance, op.const(1 - weight, dtype)))
    weight = op.cast(weight, dtype)
    from_start = op.Add(start, op.Mul(distance, weight))
    from_end = op.Sub(end, op.Mul(distance, op.Sub(1, weight)))
    return op.Where(op.Less(op.Abs(weight), 0.5), from_start, from_end)
