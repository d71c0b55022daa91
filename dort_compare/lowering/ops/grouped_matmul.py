"""Products of matrices in groups, as mixtures of experts take them: the rows of each expert with its weights.

``ends`` are the rows at which the groups end, one after the other; what lies behind the last belongs to none and is 0.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.loops import loop
from dort_compare.lowering.precision import in_float32
from dort_compare.lowering.registry import lowering, lowering_by_name
from dort_compare.lowering.sizes import behind_one_another
from dort_compare.lowering.values import dtype_of, shape_of

aten = torch.ops.aten


@lowering(aten._grouped_mm.default)
@in_float32
def grouped_mm(
    op: Builder,
    x: ir.Value,
    y: ir.Value,
    offs: ir.Value | None = None,
    bias: ir.Value | None = None,
    out_dtype: torch.dtype | None = None,
) -> ir.Value:
    """_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) -> Tensor

    Without ``offs`` both are batches; otherwise it divides what is flat: the rows of one, the columns of the other, or
    what they share.
    """
    if bias is not None:
        raise op.unsupported("a bias")
    if offs is None:
        return op.MatMul(x, y)
    ends = op.cast(offs, torch.int64)
    if len(shape_of(x)) == len(shape_of(y)):
        return _sums(op, x, y, ends)
    if len(shape_of(x)) < len(shape_of(y)):
        return _rows(op, x, y, ends)
    return op.Transpose(_rows(op, _flipped(op, y), _flipped(op, x), ends), perm=[1, 0])


@lowering_by_name("transformers::grouped_mm_fallback")
@in_float32
def grouped_mm_fallback(op: Builder, x: ir.Value, weight: ir.Value, offs: ir.Value) -> ir.Value:
    """grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor"""
    return _rows(op, x, weight, op.cast(offs, torch.int64))


@lowering_by_name("transformers::grouped_mm_fallback_backward")
@in_float32
def grouped_mm_fallback_backward(
    op: Builder, x: ir.Value, weight: ir.Value, offs: ir.Value, grad: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """grouped_mm_fallback_backward(Tensor input, Tensor weight, Tensor offs, Tensor grad_output) -> (Tensor, Tensor)"""
    ends = op.cast(offs, torch.int64)
    return _rows(op, grad, _flipped(op, weight), ends), _sums(op, _flipped(op, x), grad, ends)


def _rows(op: Builder, x: ir.Value, weight: ir.Value, ends: ir.Value) -> ir.Value:
    """(S, K) and (G, K, N) to (S, N)"""

    def step(group: ir.Value, start: ir.Value, done: ir.Value) -> tuple[ir.Value, ...]:
        end = _at(op, ends, group)
        product = op.MatMul(op.Slice(x, start, end, [0]), op.Gather(weight, group, axis=0))
        return end, op.Concat(done, product, axis=0)

    width = op.Shape(weight, start=2, end=3)
    zeros = lambda rows: op.Expand(op.const(0, dtype_of(x)), behind_one_another(op, rows, width))  # noqa: E731
    last, done = loop(op, _groups(op, ends), (op.const([0]), zeros(op.const([0]))), step, resizes=True)
    return op.Concat(done, zeros(op.Sub(op.Shape(x, start=0, end=1), last)), axis=0)


def _sums(op: Builder, x: ir.Value, y: ir.Value, ends: ir.Value) -> ir.Value:
    """(M, S) and (S, N) to (G, M, N)"""

    def step(group: ir.Value, start: ir.Value) -> tuple[ir.Value, ...]:
        end = _at(op, ends, group)
        return end, op.MatMul(op.Slice(x, start, end, [1]), op.Slice(y, start, end, [0]))

    return loop(op, _groups(op, ends), (op.const([0]),), step)[1]


def _at(op: Builder, ends: ir.Value, group: ir.Value) -> ir.Value:
    return op.Reshape(op.Gather(ends, group, axis=0), [1])


def _groups(op: Builder, ends: ir.Value) -> ir.Value:
    return op.const(op.own_size(ends, 0))


def _flipped(op: Builder, x: ir.Value) -> ir.Value:
    """``x`` with its last two dimensions swapped."""
    return op.Transpose(x, perm=[1, 0] if len(shape_of(x)) == 2 else [0, 2, 1])
