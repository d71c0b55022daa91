"""Each value once: sorted, or of neighbours.

A value is new where it differs from the one before it, so that NaN always is.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.counting import counted
from dort_compare.lowering.ops.sorting import ascending
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten
_END = 2**63 - 1
Results = tuple[ir.Value, ir.Value, ir.Value]


@lowering(aten._unique2.default)
def unique(
    op: Builder, x: ir.Value, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Results:
    """_unique2(Tensor self, bool sorted=True, bool return_inverse=False, ...) -> (Tensor, Tensor, Tensor)

    torch's CPU kernel sorts in any case, its CUDA kernel too.
    """
    places = ascending(op, op.Reshape(x, [-1]))
    in_order = op.Gather(op.Reshape(x, [-1]), places, axis=0)
    groups, firsts = _groups(op, in_order)
    inverse = op.ScatterElements(groups, places, groups, axis=0)
    return _results(op, op.Gather(in_order, firsts, axis=0), inverse, x, return_inverse, return_counts)


@lowering(aten.unique_consecutive.default)
def unique_consecutive(
    op: Builder, x: ir.Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Results:
    """unique_consecutive(Tensor self, bool return_inverse=False, ...) -> (Tensor, Tensor, Tensor)"""
    if dim is not None:
        raise op.unsupported("neighbours along a dimension")
    flat = op.Reshape(x, [-1])
    groups, firsts = _groups(op, flat)
    return _results(op, op.Gather(flat, firsts, axis=0), groups, x, return_inverse, return_counts)


def _groups(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """For each element of a vector the number of its group of equal neighbours, and where each group begins."""
    equal = op.Equal(op.Slice(x, [0], [-1], [0]), op.Slice(x, [1], [_END], [0]))
    is_first = op.Slice(op.Expand(op.const(True, torch.bool), op.Shape(x)), [0], [1], [0])
    is_new = op.Concat(is_first, op.Not(equal), axis=0)
    groups = op.Sub(op.CumSum(op.cast(is_new, torch.int64), op.const(0)), 1)
    return groups, op.Reshape(op.NonZero(is_new), [-1])


def _results(
    op: Builder, values: ir.Value, inverse: ir.Value, x: ir.Value, return_inverse: bool, return_counts: bool
) -> Results:
    """What is not asked for is empty."""
    nothing = op.const([])
    counts = counted(op, inverse, op.Size(values)) if return_counts else nothing
    return values, op.Reshape(inverse, op.Shape(x), allowzero=1) if return_inverse else nothing, counts
