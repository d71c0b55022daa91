"""Sums, means and largest elements of rows of a table, bag by bag; the gradients that go back to table and weights."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.embedding_bag_max import gradient_of_largest, largest_of_bags
from dort_compare.lowering.ops.operands import refusing_negative, same_shape
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import plus
from dort_compare.lowering.values import Dim, fake_of, is_empty, shape_of

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

    ``bag_size`` is not counted for sums; ``maximum_indices`` is a copy of it but where the largest are asked for.
    """
    _refuse(op, indices)
    output, offset2bag, bag_size, _ = op.result
    size = [_count(op, offsets, include_last_offset), op.size(weight, 1)]
    bags = _bags(op, indices, op.Slice(offsets, [0], [-1], [0]) if include_last_offset else offsets)
    rows = op.Gather(weight, refusing_negative(op, indices), axis=0)
    sizes = maximum_indices = op.Expand(op.const(0, bag_size.dtype), op.dims(size[:1]))
    ones = op.Expand(op.const(1, bag_size.dtype), op.Shape(indices))
    ones = _without_padding(op, ones, indices, padding_idx)
    if mode in (_MEAN, _MAX):
        sizes = maximum_indices = op.ScatterElements(sizes, bags, ones, axis=0, reduction="add")
    if mode == _MAX:
        result, maximum_indices = largest_of_bags(op, rows, indices, bags, op.cast(ones, torch.bool), size)
    else:
        rows = _without_padding(op, _weighted(op, rows, per_sample_weights), indices, padding_idx)
        result = _sums(op, rows, bags, size, opmath(op.result_dtype))
    if mode == _MEAN:
        divisor = op.Max(sizes, op.const(1, bag_size.dtype))
        result = op.Div(result, op.Unsqueeze(op.cast(divisor, opmath(op.result_dtype)), [1]))
    if tuple(offset2bag.shape) == (0,):
        bags = op.const([], offset2bag.dtype)
    bags = op.cast(bags, offset2bag.dtype)
    if _is_left_out(output, mode, padding_idx):
        bags = op.mark_opaque(op.Identity(bags), "torch's kernel leaves it out")
    if not same_shape(bag_size.shape, output.shape[:1]):
        reason = "torch's bag for the end of the last one"
        return result, bags, op.opaque(2, reason), op.opaque(3, reason)
    return result, bags, sizes, op.Identity(maximum_indices)


def _count(op: Builder, offsets: ir.Value, include_last_offset: bool) -> Dim:
    """How many bags there are."""
    count = op.size(offsets, 0)
    if not include_last_offset:
        return count
    return count - 1 if isinstance(count, int) else op.Sub(count, 1)


def _is_left_out(output: torch.Tensor, mode: int, padding_idx: int) -> bool:
    """Whether torch's kernel returns no bag of an index, where torch traces one for each (2.13)."""
    is_on_cpu = output.device.type == "cpu"
    return is_on_cpu and output.dtype == torch.bfloat16 and mode not in (_MEAN, _MAX) and padding_idx < 0


def _refuse(op: Builder, indices: ir.Value) -> None:
    if len(shape_of(indices)) != 1 or is_empty(indices):
        raise op.unsupported("no indices")


def _bags(op: Builder, indices: ir.Value, starts: ir.Value) -> ir.Value:
    """The bag of every index: how many bags have started there, less one."""
    count = op.size(indices, 0)
    zeros, ones = op.Expand(op.const(0), op.dims([plus(op, count, 1)])), op.Expand(op.const(1), op.Shape(starts))
    started = op.ScatterElements(zeros, op.cast(starts, torch.int64), ones, axis=0, reduction="add")
    counted = op.Slice(op.CumSum(started, op.const(0)), [0], op.dims([count]), [0])
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
    _refuse(op, indices)
    size = [num_weights, op.size(grad, 1)]
    if mode == _MAX:
        return gradient_of_largest(op, grad, bag_size, maximum_indices, size)
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
    return _sums(op, rows, indices, size, dtype)


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
    _refuse(op, indices)
    rows = op.Gather(grad, _bags_of(op, indices, offsets, offset2bag), axis=0)
    products = op.Mul(rows, op.Gather(weight, indices, axis=0))
    return _without_padding(op, op.ReduceSum(products, [1], keepdims=0), indices, padding_idx)
