"""Tensors out of nothing: filled, or counting up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import Operand
from dort_compare.lowering.ops.symbolic import is_float
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import floordiv
from dort_compare.lowering.values import Dim

aten = torch.ops.aten
prims = torch.ops.prims


def _filled(op: Builder, size: Sequence[Dim], number: Operand) -> ir.Value:
    sizes = [n if isinstance(n, int) else dim for n, dim in zip(op.result.shape, size, strict=True)]
    return op.Expand(op.const(number, op.result.dtype), op.dims(sizes))


def _filled_like(op: Builder, x: ir.Value, number: Operand) -> ir.Value:
    sizes: Sequence[Any] = op.result.shape
    shape = op.dims(list(sizes)) if all(isinstance(n, int) for n in sizes) else op.Shape(x)
    return op.Expand(op.const(number, op.result.dtype), shape)


@lowering(aten.full.default)
def full(op: Builder, size: Sequence[Dim], fill_value: Operand, **_: Any) -> ir.Value:
    """full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _filled(op, size, fill_value)


@lowering(aten.zeros.default, aten._efficientzerotensor.default)
def zeros(op: Builder, size: Sequence[Dim], **_: Any) -> ir.Value:
    """zeros(SymInt[] size, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _filled(op, size, 0)


@lowering(aten.ones.default)
def ones(op: Builder, size: Sequence[Dim], **_: Any) -> ir.Value:
    """ones(SymInt[] size, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _filled(op, size, 1)


@lowering(aten.new_zeros.default)
def new_zeros(op: Builder, x: ir.Value, size: Sequence[Dim], **_: Any) -> ir.Value:
    """new_zeros(Tensor self, SymInt[] size, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _filled(op, size, 0)


@lowering(aten.new_ones.default)
def new_ones(op: Builder, x: ir.Value, size: Sequence[Dim], **_: Any) -> ir.Value:
    """new_ones(Tensor self, SymInt[] size, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _filled(op, size, 1)


@lowering(aten.new_full.default)
def new_full(op: Builder, x: ir.Value, size: Sequence[Dim], fill_value: Operand, **_: Any) -> ir.Value:
    """new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _filled(op, size, fill_value)


@lowering(aten.zeros_like.default)
def zeros_like(op: Builder, x: ir.Value, **_: Any) -> ir.Value:
    """zeros_like(Tensor self, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _filled_like(op, x, 0)


@lowering(aten.ones_like.default)
def ones_like(op: Builder, x: ir.Value, **_: Any) -> ir.Value:
    """ones_like(Tensor self, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _filled_like(op, x, 1)


@lowering(aten.full_like.default)
def full_like(op: Builder, x: ir.Value, fill_value: Operand, **_: Any) -> ir.Value:
    """full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _filled_like(op, x, fill_value)


@lowering(aten.scalar_tensor.default, prims.scalar_tensor.default)
def scalar_tensor(op: Builder, number: Operand, **_: Any) -> ir.Value:
    """scalar_tensor(Scalar s, *, ScalarType? dtype=None, ...) -> Tensor"""
    return op.const(number, op.result.dtype)


@lowering(aten.arange.default)
def arange(op: Builder, end: Dim | float, **_: Any) -> ir.Value:
    """arange(Scalar end, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _arange(op, 0, end, 1)


@lowering(aten.arange.start)
def arange_start(op: Builder, start: Dim | float, end: Dim | float, **_: Any) -> ir.Value:
    """arange.start(Scalar start, Scalar end, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _arange(op, start, end, 1)


@lowering(aten.arange.start_step)
def arange_start_step(op: Builder, start: Dim | float, end: Dim | float, step: Dim | float = 1, **_: Any) -> ir.Value:
    """arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _arange(op, start, end, step)


@lowering(prims.iota.default)
def iota(op: Builder, length: Dim, *, start: Dim, step: Dim, **_: Any) -> ir.Value:
    """iota(SymInt length, *, SymInt start, SymInt step, ScalarType dtype, ...) -> Tensor"""
    return _counted(op, length, start, step)


def _arange(op: Builder, start: Dim | float, end: Dim | float, step: Dim | float) -> ir.Value:
    """start + i step, with i counted in int64: ONNX Runtime's own Range adds up, and so rounds, step by step.

    Its GatherToSliceFusion also takes a Gather by a Range for a Slice with the same bounds, which counts negative
    ones from the end: a Range of ours starts at 0 and steps by 1.
    """
    length = op.result.shape[0]
    if isinstance(length, int):
        return _counted(op, length, start, step)
    return _counted(op, _length(op, start, end, step), start, step)


def _length(op: Builder, start: Dim | float, end: Dim | float, step: Dim | float) -> ir.Value:
    """ceil((end - start) / step)"""
    if any(map(is_float, (start, end, step))):
        first, last, by = (op.const(bound, torch.float64) for bound in (start, end, step))
        return op.cast(op.Ceil(op.Div(op.Sub(last, first), by)), torch.int64)
    first, last, by = (op.const(bound) for bound in (start, end, step))
    if step == 1:
        return op.Sub(last, first)
    return op.Neg(op.const(floordiv(op, op.Sub(first, last), by)))


def _counted(op: Builder, length: Dim, start: Dim | float, step: Dim | float) -> ir.Value:
    count = op.Range(op.const(0), op.const(length), op.const(1))
    wide = torch.float64 if op.result.dtype.is_floating_point else torch.int64
    scaled = op.Mul(op.cast(count, wide), op.const(step, wide))
    return op.cast(op.Add(scaled, op.const(start, wide)), op.result.dtype)
