"""Values as they are, in another dtype or in another place."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import Operand, promoted, same_shape
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import fake_of, is_empty, shape_of

aten = torch.ops.aten
prims = torch.ops.prims


@lowering(aten._to_copy.default, prims.convert_element_type.default, aten.clone.default, prims.clone.default)
def to_copy(op: Builder, x: ir.Value | float, *_: Any, **__: Any) -> ir.Value:
    """_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, ...) -> Tensor

    Integers wrap around; a float that no integer holds becomes what the processor makes of it, as in torch.
    """
    return op.const(x, op.result.dtype)


@lowering(
    aten.detach.default,
    aten.detach_copy.default,
    aten.alias.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten.conj_physical.default,
    aten.positive.default,
    prims.view_of.default,
)
def same(op: Builder, x: ir.Value) -> ir.Value:
    """detach(Tensor(a) self) -> Tensor(a)"""
    return x


@lowering(aten.copy.default)
def copy(op: Builder, x: ir.Value, source: ir.Value, non_blocking: bool = False) -> ir.Value:
    """copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor"""
    return _spread(op, source, x)


@lowering(aten.fill.Scalar, aten.fill.Tensor, prims.fill.default)
def fill(op: Builder, x: ir.Value, value: Operand) -> ir.Value:
    """fill.Scalar(Tensor self, Scalar value) -> Tensor"""
    return _spread(op, value, x)


def _spread(op: Builder, source: Operand, x: ir.Value) -> ir.Value:
    """The source in the dtype and the shape of x; never by an Expand to nothing, a no-op to ORT's optimizer."""
    if is_empty(op.result):
        return x
    (value,) = promoted(op, (source,), op.result.dtype)
    if isinstance(source, ir.Value) and same_shape(shape_of(source), op.result.shape):
        return value
    return op.Expand(value, op.Shape(x))


@lowering(aten.view.dtype, prims.view_of_dtype.default)
def view_dtype(op: Builder, x: ir.Value, dtype: torch.dtype) -> ir.Value:
    """view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)

    The bits read as another dtype: ONNX can do so from opset 26, before it for bool as uint8 alone.
    """
    before = fake_of(x).dtype
    if before == dtype:
        return x
    if (before, dtype) == (torch.bool, torch.uint8):
        return op.cast(x, dtype)
    if before.itemsize != dtype.itemsize:
        raise op.unsupported(f"{before} and {dtype} are not of one size")
    if op.opset < 26 or torch.bool in (before, dtype):
        raise op.unsupported(f"the bits of {before} as {dtype} take ONNX's BitCast, which opset {op.opset} has not")
    return op.BitCast(x, to=ir.tensor_adapters.from_torch_dtype(dtype))
