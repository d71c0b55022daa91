"""Images cut into overlapping patches, and put together again."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.padded import padded
from dort_compare.lowering.precision import in_float32
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import Dim, shape_of
from dort_compare.lowering.windows import windowed

aten = torch.ops.aten
Pair = Sequence[int]


@lowering(aten.im2col.default)
def im2col(op: Builder, x: ir.Value, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair) -> ir.Value:
    """im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor

    Rows of patches are picked, then their columns; the patch comes to stand before its position.
    """
    leading = len(shape_of(x)) - 2
    batch = [op.size(x, 0)] if leading == 2 else []
    shape: list[Dim] = [*batch, *op.result.shape[-2:]]
    sizes = shape_of(x)[leading:]
    if any(padding):
        pads = [*[0] * leading, *padding]
        x = padded(op, x, pads * 2, op.const(0, op.result.dtype))
    for d in (1, 0):
        size = sizes[d]
        if not isinstance(size, int):
            raise op.unsupported("patches of a symbolic size")
        steps = (size + 2 * padding[d] - dilation[d] * (kernel_size[d] - 1) - 1) // stride[d] + 1
        places = torch.arange(kernel_size[d]).unsqueeze(1) * dilation[d] + torch.arange(steps) * stride[d]
        x = windowed(op, x, leading + d, places)
    order = [leading + d for d in (0, 2, 1, 3)]
    return op.Reshape(op.Transpose(x, perm=[*range(leading), *order]), op.dims(shape), allowzero=1)


@lowering(aten.col2im.default)
@in_float32
def col2im(
    op: Builder,
    x: ir.Value,
    output_size: Sequence[int],
    kernel_size: Pair,
    dilation: Pair,
    padding: Pair,
    stride: Pair,
) -> ir.Value:
    """col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, ...) -> Tensor"""
    single = len(shape_of(x)) == 2
    summed = op.Col2Im(
        op.Unsqueeze(x, [0]) if single else x,
        op.dims(output_size),
        op.dims(kernel_size),
        dilations=list(dilation),
        pads=list(padding) * 2,
        strides=list(stride),
    )
    return op.Squeeze(summed, [0]) if single else summed
