"""Comparisons, the larger and the smaller of two, clamping, and the choice between two."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import (
    Operand,
    chosen,
    in_kernel_dtype,
    promoted,
    promoted_dtype,
)
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of

aten = torch.ops.aten
prims = torch.ops.prims

_ON_CUDA = {torch.bfloat16: torch.float32, **dict.fromkeys((torch.uint8, torch.int8, torch.int16), torch.int32)}
"""What ONNX Runtime has no kernels on CUDA for that compare, and a dtype that holds the same values."""


def _comparison(operator: str, negated: bool = False) -> Callable[[Builder, ir.Value, Operand], ir.Value]:
    def lowered(op: Builder, x: ir.Value, y: Operand) -> ir.Value:
        dtype = promoted_dtype(x, y)
        if dtype == torch.bool:
            dtype = torch.uint8
        operands = promoted(op, (x, y), dtype)
        if op.on_cuda and dtype in _ON_CUDA:
            operands = promoted(op, operands, _ON_CUDA[dtype])
        result = getattr(op, operator)(*operands)
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
    lowering(_packet.Tensor, _packet.Scalar, getattr(prims, _name).default)(_comparison(_operator, _negated))


@lowering(aten.maximum.default, prims.maximum.default)
@in_kernel_dtype()
def maximum(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """maximum(Tensor self, Tensor other) -> Tensor

    NaN where either is.
    """
    return larger(op, x, y)


@lowering(aten.minimum.default, prims.minimum.default)
@in_kernel_dtype()
def minimum(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """minimum(Tensor self, Tensor other) -> Tensor

    NaN where either is.
    """
    return smaller(op, x, y)


@lowering(aten.fmax.default, prims.fmax.default)
@in_kernel_dtype()
def fmax(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """fmax(Tensor self, Tensor other) -> Tensor

    NaN only where both are.
    """
    return _but_for_nan(op, larger(op, x, y), x, y)


@lowering(aten.fmin.default, prims.fmin.default)
@in_kernel_dtype()
def fmin(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """fmin(Tensor self, Tensor other) -> Tensor

    NaN only where both are.
    """
    return _but_for_nan(op, smaller(op, x, y), x, y)


def larger(op: Builder, x: ir.Value, y: ir.Value | int) -> ir.Value:
    """The larger of two of one dtype, NaN where either is."""
    return op.Where(op.Less(x, y), y, x) if takes_halves_apart(op, dtype_of(x)) else op.Max(x, y)


def smaller(op: Builder, x: ir.Value, y: ir.Value | int) -> ir.Value:
    """The smaller of two of one dtype, NaN where either is."""
    return op.Where(op.Less(y, x), y, x) if takes_halves_apart(op, dtype_of(x)) else op.Min(x, y)


def takes_halves_apart(op: Builder, dtype: torch.dtype) -> bool:
    """Whether ONNX Runtime's Max, Min, ReduceMax and ReduceMin of ``dtype`` err.

    Those of int64 on CPUs (1.31) compare the lower halves as signed where the upper ones are equal: 1 above 2**31.
    """
    return dtype == torch.int64 and not op.on_cuda


def _but_for_nan(op: Builder, value: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    if not dtype_of(value).is_floating_point:
        return value
    return op.Where(op.IsNaN(x), y, op.Where(op.IsNaN(y), x, value))


@lowering(aten.clamp.default)
def clamp(op: Builder, x: ir.Value, min: Operand | None = None, max: Operand | None = None) -> ir.Value:
    """clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor

    NaN passes unchanged; NaN for a bound makes everything NaN.
    """
    return _clamped(op, x, min, max)


@lowering(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(op: Builder, x: ir.Value, min: Operand) -> ir.Value:
    """clamp_min(Tensor self, Scalar min) -> Tensor"""
    return _clamped(op, x, min, None)


@lowering(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(op: Builder, x: ir.Value, max: Operand) -> ir.Value:
    """clamp_max(Tensor self, Scalar max) -> Tensor"""
    return _clamped(op, x, None, max)


@lowering(aten.clamp.Tensor)
def clamp_tensor(op: Builder, x: ir.Value, min: ir.Value | None = None, max: ir.Value | None = None) -> ir.Value:
    """clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor

    NaN where any is.
    """
    return _clamped(op, x, min, max)


@in_kernel_dtype()
def _clamped(op: Builder, x: ir.Value, low: ir.Value | None, high: ir.Value | None) -> ir.Value:
    if low is not None and high is not None and _is_number(low) and _is_number(high):
        return between(op, x, low, high)
    if low is not None:
        x = larger(op, x, low)
    return x if high is None else smaller(op, x, high)


def _is_number(bound: ir.Value) -> bool:
    held = bound.const_value
    return held is not None and not held.shape and not math.isnan(held.numpy())


def between(op: Builder, x: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
    """``x`` within two numbers that are not NaN, ``high`` where they are the wrong way round; NaN stays.

    ONNX Runtime's Clip on CUDA makes ``low`` of NaN, and one in float64 behind a Relu is refused by ``ReluClipFusion``.
    """
    if op.on_cuda or dtype_of(x) in (torch.float64, torch.int64):
        return smaller(op, larger(op, x, low), high)
    return op.Clip(x, low, high)


@lowering(aten.where.self, prims.where.default, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def where(op: Builder, condition: ir.Value, x: Operand, y: Operand) -> ir.Value:
    """where.self(Tensor condition, Tensor self, Tensor other) -> Tensor"""
    return chosen(op, op.cast(condition, torch.bool), x, y)


@lowering(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(op: Builder, x: ir.Value, mask: ir.Value, value: Operand) -> ir.Value:
    """masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor"""
    return chosen(op, mask, value, x)
