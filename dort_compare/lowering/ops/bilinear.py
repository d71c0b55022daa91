"""Products of three tensors, summed: what a bilinear layer computes, and its gradients."""

from __future__ import annotations

import string
from collections.abc import Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import is_empty, shape_of

aten = torch.ops.aten


@lowering(aten._trilinear.default)
@in_float32
def trilinear(
    op: Builder,
    x: ir.Value,
    y: ir.Value,
    z: ir.Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> ir.Value:
    """_trilinear(Tensor i1, Tensor i2, Tensor i3, int[] expand1, int[] expand2, int[] expand3, int[] sumdim, ...)

    ``expand`` are the dimensions that an operand lacks, ``sumdim`` those that are summed.
    """
    if is_empty(x, y, z):
        return op.Expand(op.const(0, opmath(op.result.dtype)), op.dims(op.result.shape))
    letters = string.ascii_lowercase[: len(shape_of(x)) + len(expand1)]
    left, middle, right, kept = (
        "".join(letter for d, letter in enumerate(letters) if d not in missing)
        for missing in (expand1, expand2, expand3, sumdim)
    )
    return op.Einsum(x, y, z, equation=f"{left},{middle},{right}->{kept}")
