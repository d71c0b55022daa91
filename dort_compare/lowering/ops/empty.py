"""Tensors whose values nobody has set: zeros, marked as not to be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import Dim
from dort_compare.unset import EMPTY, EMPTY_LIKE, NEW_EMPTY

_UNSET = "torch leaves these values as they were in memory"


def _unset(op: Builder, shape: ir.Value) -> ir.Value:
    return op.mark_opaque(op.Expand(op.const(0, op.result.dtype), shape), _UNSET)


@lowering(*EMPTY)
def empty(op: Builder, size: Sequence[Dim], *_: Any, **__: Any) -> ir.Value:
    """empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _unset(op, op.dims(size))


@lowering(*NEW_EMPTY)
def new_empty(op: Builder, x: ir.Value, size: Sequence[Dim], *_: Any, **__: Any) -> ir.Value:
    """new_empty(Tensor self, SymInt[] size, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _unset(op, op.dims(size))


@lowering(*EMPTY_LIKE)
def empty_like(op: Builder, x: ir.Value, **_: Any) -> ir.Value:
    """empty_like(Tensor self, *, ScalarType? dtype=None, ...) -> Tensor"""
    return _unset(op, op.Shape(x))
