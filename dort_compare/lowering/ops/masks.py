"""Masks: as the indices of what they let through, as a choice, as positions in what they select."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import chosen, same_shape
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import product
from dort_compare.lowering.values import Dim, shape_of

aten = torch.ops.aten


def is_mask(index: ir.Value | None) -> bool:
    """Whether an index is a mask, which bytes are as well as booleans."""
    return index is not None and index.dtype in (ir.DataType.BOOL, ir.DataType.UINT8)


def without_masks(op: Builder, indices: Sequence[ir.Value | None]) -> list[ir.Value | None]:
    """Each mask replaced by the coordinates of what it lets through, a vector for each of its dimensions."""
    found: list[ir.Value | None] = []
    for index in indices:
        if index is None or not is_mask(index):
            found.append(index)
        else:
            found.extend(_coordinates(op, index))
    return found


def _coordinates(op: Builder, mask: ir.Value) -> list[ir.Value]:
    rank = len(shape_of(mask))
    if not rank:
        raise op.unsupported("a mask of no dimension as index")
    places = op.NonZero(op.cast(mask, torch.bool))
    return [op.Gather(places, op.const(dim), axis=0) for dim in range(rank)]


@lowering(aten.nonzero.default)
def nonzero(op: Builder, x: ir.Value) -> ir.Value:
    """nonzero(Tensor self) -> Tensor"""
    mask = op.cast(x, torch.bool)
    if shape_of(x):
        return op.Transpose(op.NonZero(mask), perm=[1, 0])
    places = op.Transpose(op.NonZero(op.Reshape(mask, [1])), perm=[1, 0])
    return op.Slice(places, [0], [0], [1])


@lowering(aten.nonzero_static.default)
def nonzero_static(op: Builder, x: ir.Value, *, size: Dim, fill_value: int = -1) -> ir.Value:
    """nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor"""
    count = op.dims([size])
    filled = op.Expand(op.const(fill_value), op.dims([size, len(shape_of(x))]))
    return op.Slice(op.Concat(nonzero(op, x), filled, axis=0), [0], count, [0])


@lowering(aten.masked_select.default)
def masked_select(op: Builder, x: ir.Value, mask: ir.Value) -> ir.Value:
    """masked_select(Tensor self, Tensor mask) -> Tensor"""
    x, mask = _broadcast(op, x, mask)
    return _selected(op, x, mask)


def _broadcast(op: Builder, x: ir.Value, mask: ir.Value) -> tuple[ir.Value, ir.Value]:
    if same_shape(shape_of(x), shape_of(mask)):
        return x, mask
    return op.Expand(x, op.Shape(mask)), op.Expand(mask, op.Shape(x))


def _selected(op: Builder, x: ir.Value, mask: ir.Value) -> ir.Value:
    """The elements that a mask of the same shape lets through; Compress would do, but for bfloat16."""
    places = op.Gather(op.NonZero(op.Reshape(mask, [-1])), op.const(0), axis=0)
    return op.Gather(op.Reshape(x, [-1]), places, axis=0)


@lowering(aten.masked_scatter.default)
def masked_scatter(op: Builder, x: ir.Value, mask: ir.Value, source: ir.Value) -> ir.Value:
    """masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor

    What the mask lets through is replaced by the elements of ``source`` in order; if they are too few, for which torch
    raises, ONNX Runtime does.
    """
    x, mask = _broadcast(op, x, mask)
    flat = op.Reshape(mask, [-1])
    places = op.Where(flat, op.CumSum(op.cast(flat, torch.int64), op.const(0)), 0)
    elements = op.Concat(op.const([0], op.result.dtype), op.Reshape(source, [-1]), axis=0)
    replacement = op.Gather(elements, places)
    return chosen(op, mask, op.Reshape(replacement, op.Shape(x), allowzero=1), x)


@lowering(aten.masked_scatter_backward.default)
def masked_scatter_backward(op: Builder, grad: ir.Value, mask: ir.Value, sizes: Sequence[Any]) -> ir.Value:
    """masked_scatter_backward(Tensor grad_output, Tensor mask, SymInt[] sizes) -> Tensor

    The gradients of what the mask lets through, in order, and zeros behind them.
    """
    dtype = op.result.dtype
    selected = _selected(op, *_broadcast(op, grad, mask))
    count = op.dims([product(op, sizes)])
    behind = op.Expand(op.const(0, dtype), count)
    return op.Reshape(op.Slice(op.Concat(selected, behind, axis=0), [0], count, [0]), op.dims(sizes), allowzero=1)
