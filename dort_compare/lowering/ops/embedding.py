"""Rows of a table, and the gradient that goes back to them."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import refusing_negative
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import Dim, fake_of, is_empty

aten = torch.ops.aten


@lowering(aten.embedding.default)
def embedding(
    op: Builder,
    weight: ir.Value,
    indices: ir.Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> ir.Value:
    """embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, ...) -> Tensor"""
    return op.Gather(weight, refusing_negative(op, indices), axis=0)


@lowering(aten.embedding_dense_backward.default)
@in_float32
def embedding_dense_backward(
    op: Builder, grad: ir.Value, indices: ir.Value, num_weights: Dim, padding_idx: int, scale_grad_by_freq: bool
) -> ir.Value:
    """embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, ...) -> Tensor

    Each row of the gradient is added to the row of the table that it came from. ScatterElements, because ONNX Runtime's
    CPU ScatterND races where an index stands twice (onnxruntime#18048).
    """
    if fake_of(indices).dtype not in (torch.int32, torch.int64):
        raise op.unsupported("indices that are neither int32 nor int64")
    width = op.size(grad, -1)
    dtype = opmath(op.result.dtype)
    table = op.Expand(op.const(0, dtype), op.dims([num_weights, width]))
    if is_empty(grad):
        return table
    flat = op.Reshape(indices, [-1])
    rows = op.Reshape(grad, op.dims([-1, width]))
    if scale_grad_by_freq:
        rows = _scaled_by_frequency(op, rows, flat, num_weights, dtype)
    if padding_idx >= 0:
        is_padding = op.Unsqueeze(op.Equal(flat, padding_idx), [1])
        rows = op.Where(is_padding, op.const(0, dtype), rows)
    targets = op.Expand(op.Unsqueeze(flat, [1]), op.Shape(rows))
    return op.ScatterElements(table, targets, rows, axis=0, reduction="add")


def _scaled_by_frequency(
    op: Builder, rows: ir.Value, indices: ir.Value, num_weights: Dim, dtype: torch.dtype
) -> ir.Value:
    """Each row divided by how often its index occurs."""
    zeros = op.Expand(op.const(0, dtype), op.dims([num_weights]))
    ones = op.Expand(op.const(1, dtype), op.Shape(indices))
    counts = op.ScatterElements(zeros, indices, ones, axis=0, reduction="add")
    return op.Div(rows, op.Unsqueeze(op.Gather(counts, indices, axis=0), [1]))
