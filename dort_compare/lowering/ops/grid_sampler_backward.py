"""The gradients of reading images at arbitrary places, by image and by place."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sampling import Sampling

aten = torch.ops.aten


@lowering(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
@in_float32
def grid_sampler_backward(
    op: Builder,
    grad: ir.Value,
    x: ir.Value,
    grid: ir.Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[ir.Value | None, ...]:
    """grid_sampler_2d_backward(Tensor grad_output, Tensor input, Tensor grid, int interpolation_mode, ...) -> 2 Tensors

    Every place read one pixel (nearest) or 2 ** rank (linear): to these its gradient returns, with their weights.
    """
    sampling = Sampling.of(op, x, grid, interpolation_mode, padding_mode, align_corners)
    grads, pixels = sampling.places(op, grad), sampling.pixels(op, x)
    by_input = by_grid = None
    if output_mask[0]:
        by_input = op.Reshape(_spread(op, grads, pixels, sampling), sampling.image)
    if output_mask[1]:
        by_place = _by_place(op, grads, pixels, sampling)
        by_grid = op.Reshape(by_place, [sampling.image[0], *sampling.samples, len(sampling.axes)])
    return by_input, by_grid


def _spread(op: Builder, grads: ir.Value, pixels: ir.Value, sampling: Sampling) -> ir.Value:
    """Each gradient times the weight of a pixel, added up pixel by pixel."""
    zero = op.const(0, opmath(op.result_dtype))
    parts, targets = [], []
    for corner in sampling.corners:
        part = op.Mul(grads, corner.weight(op))
        parts.append(op.Where(op.Unsqueeze(corner.exists, [1]), part, zero))
        targets.append(sampling.targets(op, corner))
    zeros = op.Expand(zero, op.Shape(pixels))
    return op.ScatterElements(zeros, op.Concat(*targets, axis=2), op.Concat(*parts, axis=2), axis=2, reduction="add")


def _by_place(op: Builder, grads: ir.Value, pixels: ir.Value, sampling: Sampling) -> ir.Value:
    """(batch, places, rank): what each pixel is worth to the place, times how its weight changes with the number.

    In volumes a pixel that is not there counts for nothing, even where its weight is NaN, as in torch's kernels.
    """
    dtype = opmath(op.result_dtype)
    sums: list[ir.Value | None] = [None] * len(sampling.axes)
    for corner in sampling.corners:
        read = op.GatherElements(pixels, sampling.targets(op, corner), axis=2)
        worth = op.Where(corner.exists, op.ReduceSum(op.Mul(read, grads), [1], keepdims=0), op.const(0, dtype))
        for d, sign in enumerate(corner.signs):
            others = [weight for e, weight in enumerate(corner.weights) if e != d]
            change = op.Mul(functools.reduce(op.Mul, others, worth), op.const(sign, dtype))
            if len(sampling.axes) == 3:
                change = op.Where(corner.exists, change, op.const(0, dtype))
            so_far = sums[d]
            sums[d] = change if so_far is None else op.Add(so_far, change)
    by_number = [op.Unsqueeze(op.Mul(total, axis.slope), [2]) for total, axis in zip(sums, sampling.axes, strict=True)]
    return op.Concat(*reversed(by_number), axis=2)
