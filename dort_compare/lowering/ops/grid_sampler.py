"""Images read at arbitrary places."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sampling import CUBIC, NEAREST, REFLECTION, ZEROS, Sampling
from dort_compare.lowering.values import is_empty, shape_of

aten = torch.ops.aten
_MODES = ("linear", "nearest", "cubic")
_OLD_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")
_FAR = 16.0
"""Outside of every image, even one pixel wide, in halves of its width; float32 still tells pixels apart there."""


@lowering(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
@in_float32
def grid_sampler(
    op: Builder, x: ir.Value, grid: ir.Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> ir.Value:
    """grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, ...) -> Tensor

    ONNX Runtime counts pixels in integers: a place that these do not reach, or NaN, would read some pixel of the image.
    As in torch's kernels, weights of a place that is not finite are NaN in images; a volume has nothing there. Padding
    by reflection is left as it is: so far outside a rounding decides which pixel a place reads.
    """
    if is_empty(x, grid):
        return op.Expand(op.const(0, opmath(op.result.dtype)), op.dims(op.result.shape))
    if op.opset < 20 and len(shape_of(x)) == 5:
        return _read(op, x, Sampling.of(op, x, grid, interpolation_mode, padding_mode, align_corners))
    near = op.Clip(grid, -_FAR, _FAR) if padding_mode != REFLECTION else grid
    sampled = op.GridSample(
        x,
        near,
        mode=(_MODES if op.opset >= 20 else _OLD_MODES)[interpolation_mode],
        padding_mode=_PADDINGS[padding_mode],
        align_corners=int(align_corners),
    )
    if padding_mode != ZEROS and interpolation_mode != CUBIC:
        return sampled
    nowhere = op.IsNaN(op.ReduceSum(op.Sub(grid, grid), [-1], keepdims=0))
    has_weights = len(shape_of(x)) == 4 and interpolation_mode != NEAREST
    return op.Where(op.Unsqueeze(nowhere, [1]), math.nan if has_weights else 0, sampled)


def _read(op: Builder, x: ir.Value, sampling: Sampling) -> ir.Value:
    """Volumes, which ONNX samples from opset 20 on: the sum of the pixels around each place, by their weights."""
    zero = op.const(0, opmath(op.result.dtype))
    pixels, total = sampling.pixels(op, x), zero
    for corner in sampling.corners:
        part = op.Mul(op.GatherElements(pixels, sampling.targets(op, corner), axis=2), corner.weight(op))
        total = op.Add(total, op.Where(op.Unsqueeze(corner.exists, [1]), part, zero))
    return op.Reshape(total, [*sampling.image[:2], *sampling.samples])
