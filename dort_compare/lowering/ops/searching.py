"""Places in sorted sequences, and counts by them."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import Operand
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import Dim, fake_of, is_empty, shape_of

aten = torch.ops.aten


@lowering(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(
    op: Builder,
    sequence: ir.Value,
    x: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: ir.Value | None = None,
) -> ir.Value:
    """searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, ...)

    A sequence of several dimensions is searched line by line, for the lines of ``self``.
    """
    if sorter is not None:
        sequence = _with_meta(op.GatherElements(sequence, sorter, axis=-1), sequence)
    return _searched(op, sequence, x, right or side == "right")


@lowering(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(
    op: Builder, x: Operand, boundaries: ir.Value, *, out_int32: bool = False, right: bool = False
) -> ir.Value:
    """bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor"""
    return _searched(op, boundaries, x, right)


def _with_meta(value: ir.Value, like: ir.Value) -> ir.Value:
    value.meta.update(like.meta)
    return value


def _searched(op: Builder, sequence: ir.Value, x: Operand, right: bool) -> ir.Value:
    """Bisection: the place grows by 2^k, ..., 2, 1 wherever the element in front of the new one is passed.

    What no element is as large as, NaN too, comes last.
    """
    size = shape_of(sequence)[-1]
    if not isinstance(size, int):
        raise op.unsupported("a sorted sequence of symbolic length")
    sequence, wanted = _comparable(op, sequence, x)
    comparison = "Greater" if right else "GreaterOrEqual"
    is_passed: Callable[[ir.Value], ir.Value] = lambda value: op.Not(getattr(op, comparison)(value, wanted))  # noqa: E731
    rank = len(shape_of(sequence))
    places = op.Expand(op.const(0), op.Shape(wanted))
    for k in reversed(range(size.bit_length())):
        further = op.Add(places, 2**k)
        last = op.Min(further, size)
        probed = op.Sub(last, 1)
        value = op.Gather(sequence, probed, axis=0) if rank == 1 else op.GatherElements(sequence, probed, axis=-1)
        passes = op.And(op.LessOrEqual(further, op.const(size)), is_passed(value))
        places = op.Where(passes, further, places)
    return op.cast(places, op.result.dtype)


def _comparable(op: Builder, sequence: ir.Value, x: Operand) -> tuple[ir.Value, ir.Value]:
    """Both in the dtype of the sequence's or wider; torch compares values, not dtypes."""
    kept = fake_of(sequence)
    if isinstance(x, ir.Value):
        dtype = torch.promote_types(kept.dtype, fake_of(x).dtype)
        return _with_meta(op.cast(sequence, dtype), sequence), op.cast(x, dtype)
    dtype = torch.result_type(kept, x)
    return _with_meta(op.cast(sequence, dtype), sequence), op.const(x, dtype)


@lowering(aten.repeat_interleave.Tensor)
def repeat_interleave(op: Builder, repeats: ir.Value, output_size: Dim | None = None) -> ir.Value:
    """repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor

    Index i stands repeats[i] times: the sum, over the places up to each one, of how many indices begin there. A
    negative number of times ends nowhere, which is out of range.
    """
    if is_empty(repeats):
        return repeats
    counts = op.cast(repeats, torch.int64)
    sums = op.CumSum(counts, op.const(0))
    ends, total = op.Where(op.Less(counts, 0), torch.iinfo(torch.int64).max, sums), op.Gather(sums, op.const([-1]))
    begun = op.ScatterElements(
        op.Expand(op.const(0), op.Add(total, 1)), ends, op.Expand(op.const(1), op.Shape(ends)), axis=0, reduction="add"
    )
    indices = op.cast(op.Slice(op.CumSum(begun, op.const(0)), [0], total, [0]), op.result.dtype)
    # Reshape refuses more or fewer
    return indices if output_size is None else op.Reshape(indices, op.dims([output_size]), allowzero=1)
