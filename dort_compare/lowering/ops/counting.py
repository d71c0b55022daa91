"""Counts: of integers, and of numbers that fall into bins."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder, Dim
from dort_compare.lowering.ops.operands import dtype_of
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten


def counted(op: Builder, x: ir.Value, size: ir.Value, weights: ir.Value | None = None) -> ir.Value:
    """How often each of 0, 1, ..., size - 1 stands in a vector, or the sum of its weights; others are out of range."""
    terms = op.Expand(op.const(1), op.Shape(x)) if weights is None else weights
    zeros = op.Expand(op.const(0, dtype_of(terms)), op.Reshape(size, [1]))
    return op.ScatterElements(zeros, x, terms, axis=0, reduction="add")


@lowering(aten.bincount.default)
def bincount(op: Builder, x: ir.Value, weights: ir.Value | None = None, minlength: Dim = 0) -> ir.Value:
    """bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor

    A negative number, for which torch raises, is sent behind the last bin, where ONNX Runtime raises.
    """
    wide = op.cast(x, torch.int64)
    largest = op.ReduceMax(op.Concat(wide, op.const([-1]), axis=0), keepdims=0)
    size = op.Max(op.Add(largest, 1), op.const(minlength))
    places = op.Where(op.Less(wide, 0), size, wide)
    return counted(op, places, size, weights and op.cast(weights, op.result.dtype))
