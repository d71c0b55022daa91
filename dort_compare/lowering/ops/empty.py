"""Tensors whose values nobody has set: zeros, marked as not to be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder, Dim
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten
prims = torch.ops.prims

_UNSET = "torch leaves these values as they were in memory"


def _unset(op: Builder, shape: ir.Value) -> ir.Value:
    return op.mark_opaque(op.Expand(op.const(0, op.result.dtype), shape), _UNSET)


@lowering(
    aten.empty.memory_format,
    aten.empty_permuted.default,
    aten.empty_strided.default,
    prims.empty.default,
    prims.empty_permuted.default,
    prims.empty_strided.default,
)
def empty(op: Builder, size: Sequence[Dim], *_: Any, **__: Any) -> ir.Value:
    """empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _unset(op, op.dims(size))


@lowering(aten.new_empty.default, aten.new_empty_strided.default)
def new_empty(op: Builder, x: ir.Value, size: Sequence[Dim], *_: Any, **__: Any) -> ir.Value:
    """new_empty(Tensor self, SymInt[] size, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _unset(op, op.dims(size))


@lowering(aten.empty_like.default)
def empty_like(op: Builder, x: ir.Value, **_: Any) -> ir.Value:
    """empty_like(Tensor self, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _unset(op, op.Shape(x))
