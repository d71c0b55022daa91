"""Sums and means of rows of a table, bag by bag, and the gradients that go back to table and weights."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder, Dim, fake_of, is_empty, shape_of
from dort_compare.lowering.ops.operands import refusing_negative
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten
_MEAN, _MAX = 1, 2


@lowering(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
@in_float32
def embedding_bag(
    op: Builder,
    weight: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: ir.Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[ir.Value | None, ...]:
    """_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, ...)
    -> (Tensor, Tensor offset2bag, Tensor bag_size, Tensor maximum_indices)

    ``bag_size`` is counted for means only; ``maximum_indices`` is then a copy of it.
    """
    _refuse(op, indices, mode)
    output, offset2bag, bag_size, _ = op.result
    count = output.shape[0]
    starts = op.Slice(offsets, [0], [-1], [0]) if include_last_offset else offsets
    bags = _bags(op, indices, starts)
    rows = op.Gather(weight, refusing_negative(op, indices), axis=0)
    rows = _weighted(op, rows, per_sample_weights)
    rows = _without_padding(op, rows, indices, padding_idx)
    sums = _sums(op, rows, bags, [count, output.shape[1]], opmath(op.result_dtype))
    sizes = op.Expand(op.const(0, bag_size.dtype), op.dims([count]))
    if mode == _MEAN:
        ones = op.Expand(op.const(1, bag_size.dtype), op.Shape(indices))
        ones = _without_padding(op, ones, indices, padding_idx)
        sizes = op.ScatterElements(sizes, bags, ones, axis=0, reduction="add")
        divisor = op.Max(sizes, op.const(1, bag_size.dtype))
        sums = op.Div(sums, op.Unsqueeze(op.cast(divisor, opmath(op.result_dtype)), [1]))
    if tuple(offset2bag.shape) == (0,):
        bags = op.const([], offset2bag.dtype)
    bags = op.cast(bags, offset2bag.dtype)
    if _is_left_out(output, mode, padding_idx):
        bags = op.mark_opaque(op.Identity(bags), "torch's kernel leaves it out")
    if tuple(bag_size.shape) != (count,):
        reason = "torch's bag for the end of the last one"
        return sums, bags, op.opaque(2, reason), op.opaque(3, reason)
    return sums, bags, sizes, op.Identity(sizes)


def _is_left_out(output: torch.Tensor, mode: int, padding_idx: int) -> bool:
    """Whether torch's kernel returns no bag of an index, where torch traces one for each (2.13)."""
    is_on_cpu = output.device.type == "cpu"
    return is_on_cpu and output.dtype == torch.bfloat16 and mode not in (_MEAN, _MAX) and padding_idx < 0


def _refuse(op: Builder, indices: ir.Value, mode: int) -> None:
    if mode == _MAX:
        raise op.unsupported("the largest of a bag")
    if len(shape_of(indices)) != 1 or is_empty(indices):
        raise op.unsupported("no indices")


def _bags(op: Builder, indices: ir.Value, starts: ir.Value) -> ir.Value:
    """The bag of every index: how many bags have started there, less one."""
    length = op.Add(op.Shape(indices), op.const([1]))
    zeros, ones = op.Expand(op.const(0), length), op.Expand(op.const(1), op.Shape(starts))
    started = op.ScatterElements(zeros, op.cast(starts, torch.int64), ones, axis=0, reduction="add")
    counted = op.Slice(op.CumSum(started, op.const(0)), [0], op.Shape(indices), [0])
    return op.Sub(counted, op.const(1))


def _weighted(op: Builder, rows: ir.Value, per_sample_weights: ir.Value | None) -> ir.Value:
    return rows if per_sample_weights is None else op.Mul(rows, op.Unsqueeze(per_sample_weights, [1]))


def _without_padding(op: Builder, values: ir.Value, indices: ir.Value, padding_idx: int) -> ir.Value:
    """Zeros for what stands at ``padding_idx``."""
    if padding_idx < 0:
        return values
    is_padding = op.Equal(indices, op.const(padding_idx, fake_of(indices).dtype))
    if values.shape is not None and len(values.shape) == 2:
        is_padding = op.Unsqueeze(is_padding, [1])
    return op.Where(is_padding, op.CastLike(op.const(0), values), values)


def _sums(op: Builder, rows: ir.Value, targets: ir.Value, shape: list[Dim], dtype: torch.dtype) -> ir.Value:
    """Rows added up in a table of ``shape``, each at its target."""
    table = op.Expand(op.const(0, dtype), op.dims(shape))
    spread = op.Expand(op.Unsqueeze(targets, [1]), op.Shape(rows))
    return op.ScatterElements(table, spread, rows, axis=0, reduction="add")


@lowering(aten._embedding_bag_backward.default)
@in_float32
def embedding_bag_backward(
    op: Builder,
    grad: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    offset2bag: ir.Value,
    bag_size: ir.Value,
    maximum_indices: ir.Value,
    num_weights: Dim,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: ir.Value | None,
    padding_idx: int = -1,
) -> ir.Value:
    """_embedding_bag_backward(Tensor grad, Tensor indices, Tensor offsets, Tensor offset2bag, ...) -> Tensor"""
    _refuse(op, indices, mode)
    if scale_grad_by_freq:
        raise op.unsupported("gradients divided by the frequency of their rows")
    dtype = opmath(op.result.dtype)
    if mode == _MEAN:
        divisor = op.Max(bag_size, op.const(1, fake_of(bag_size).dtype))
        grad_of_bag = op.Div(grad, op.Unsqueeze(op.cast(divisor, dtype), [1]))
    else:
        grad_of_bag = grad
    rows = op.Gather(grad_of_bag, _bags_of(op, indices, offsets, offset2bag), axis=0)
    rows = _without_padding(op, _weighted(op, rows, per_sample_weights), indices, padding_idx)
    return _sums(op, rows, indices, [num_weights, op.size(grad, 1)], dtype)


def _bags_of(op: Builder, indices: ir.Value, offsets: ir.Value, offset2bag: ir.Value) -> ir.Value:
    """What the forward pass returned, if it did."""
    return _bags(op, indices, offsets) if is_empty(offset2bag) else offset2bag


@lowering(aten._embedding_bag_per_sample_weights_backward.default)
@in_float32
def embedding_bag_per_sample_weights_backward(
    op: Builder,
    grad: ir.Value,
    weight: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    offset2bag: ir.Value,
    mode: int,
    padding_idx: int = -1,
) -> ir.Value:
    """_embedding_bag_per_sample_weights_backward(Tensor grad, Tensor weight, Tensor indices, ...) -> Tensor"""
    _refuse(op, indices, mode)
    rows = op.Gather(grad, _bags_of(op, indices, offsets, offset2bag), axis=0)
    products = op.Mul(rows, op.Gather(weight, indices, axis=0))
    return _without_padding(op, op.ReduceSum(products, [1], keepdims=0), indices, padding_idx)
