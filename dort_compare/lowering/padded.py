"""Borders of one number around a tensor, also in the dtypes for which ONNX Runtime's CUDA provider has no Pad."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.values import Dim, dtype_of

_ON_CUDA = (torch.float32, torch.float64, torch.float16, torch.bool)


def padded(op: Builder, x: ir.Value, pads: Sequence[Dim], number: ir.Value) -> ir.Value:
    """ONNX's Pad: ``pads`` are those before each dimension, then those behind; negative ones cut.

    What CUDA has no kernel for would be computed on the host: bfloat16 goes by way of float32, which holds it, and
    integers are joined with their borders, if these are known and cut nothing.
    """
    dtype = dtype_of(x)
    if not op.on_cuda or dtype in _ON_CUDA:
        return op.Pad(x, op.dims(pads), number)
    if dtype == torch.bfloat16:
        wide, border = (op.cast(each, torch.float32) for each in (x, number))
        return op.cast(op.Pad(wide, op.dims(pads), border), dtype)
    known = [pad for pad in pads if isinstance(pad, int) and pad >= 0]
    if len(known) < len(pads):
        return op.Pad(x, op.dims(pads), number)
    return _joined(op, x, known, number)


def _joined(op: Builder, x: ir.Value, pads: Sequence[int], number: ir.Value) -> ir.Value:
    rank = len(pads) // 2
    for dim in range(rank):
        sizes = [op.own_size(x, d) for d in range(rank)]
        before, after = (
            [op.Expand(number, op.dims([*sizes[:dim], pad, *sizes[dim + 1 :]]))] if pad else []
            for pad in (pads[dim], pads[dim + rank])
        )
        if before or after:
            x = op.Concat(*before, x, *after, axis=dim)
    return x
