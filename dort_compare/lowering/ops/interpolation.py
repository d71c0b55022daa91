"""Images made smaller or larger by interpolation between the nearest pixels, and the gradients of that."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor

from dort_compare.lowering.builder import Builder, is_empty, shape_of
from dort_compare.lowering.ops.resampling import scale_of
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.windows import Windows, window_sums

aten = torch.ops.aten
Interpolation = Callable[..., Windows]
"""Of a size, of how many steps it becomes, whether corners are aligned, torch's scale factor or None, and a dtype: the
pixels that enter each new one, with weights in the order of torch's own arithmetic."""


def _steps(steps: int, dtype: torch.dtype, scale: Tensor, align_corners: bool) -> Tensor:
    """Where the new pixels lie, in pixels of the image."""
    counted = torch.arange(steps, dtype=dtype)
    return scale * counted if align_corners else scale * (counted + 0.5) - 0.5


def _linear(size: int, steps: int, align_corners: bool, factor: float | None, dtype: torch.dtype) -> Windows:
    scale = scale_of(size, steps, align_corners, factor, dtype)
    centre = _steps(steps, dtype, scale, align_corners).clamp(min=0)
    first = centre.long().clamp(max=size - 1)
    share = (centre - first).clamp(0, 1)
    places = torch.stack([first, (first + 1).clamp(max=size - 1)], 1)
    return Windows.weighted(places, torch.stack([1 - share, share], 1))


def _cubic(size: int, steps: int, align_corners: bool, factor: float | None, dtype: torch.dtype) -> Windows:
    """Keys' cubic with a = -3/4."""
    scale = scale_of(size, steps, align_corners, factor, dtype)
    centre = _steps(steps, dtype, scale, align_corners)
    first = centre.floor()
    share = (centre - first).clamp(0, 1)
    inner, outer = functools.partial(_inner_cubic, a=-0.75), functools.partial(_outer_cubic, a=-0.75)
    weights = torch.stack([outer(share + 1), inner(share), inner(1 - share), outer(2 - share)], 1)
    places = first.long().unsqueeze(1) + torch.arange(-1, 3)
    return Windows.weighted(places.clamp(0, size - 1), weights)


def _inner_cubic(x: Tensor, a: float) -> Tensor:
    return ((a + 2) * x - (a + 3)) * x * x + 1


def _outer_cubic(x: Tensor, a: float) -> Tensor:
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def _nearest(
    size: int, steps: int, align_corners: bool, factor: float | None, dtype: torch.dtype, offset: float = 0
) -> Windows:
    """torch computes these places in float32, of whatever dtype the image is."""
    scale = scale_of(size, steps, align_corners, factor, torch.float32)
    places = ((torch.arange(steps, dtype=torch.float32) + offset) * scale).long().clamp(max=size - 1)
    return Windows.weighted(places.unsqueeze(1), torch.ones(steps, 1))


_OPS: dict[str, tuple[int, bool, Interpolation]] = {
    "upsample_linear1d": (1, True, _linear),
    "upsample_bilinear2d": (2, True, _linear),
    "upsample_trilinear3d": (3, True, _linear),
    "upsample_bicubic2d": (2, True, _cubic),
    **{f"upsample_nearest{rank}d": (rank, False, _nearest) for rank in (1, 2, 3)},
    **{f"_upsample_nearest_exact{rank}d": (rank, False, functools.partial(_nearest, offset=0.5)) for rank in (1, 2, 3)},
}
"""For each of torch's ops how many dimensions it has, whether it can align corners, and how it interpolates."""


def _interpolated(
    op: Builder, x: ir.Value, sizes: Sequence[Any], steps: Sequence[Any], windows: Sequence[Windows] | None
) -> ir.Value:
    """``x`` of the last ``sizes`` as ``steps``: the last dimension first where it grows, last where it shrinks."""
    if windows is None:
        raise op.unsupported("a symbolic size")
    if not op.result.dtype.is_floating_point:
        raise op.unsupported("images of integers")
    if is_empty(op.result):
        return op.Expand(op.const(0, opmath(op.result.dtype)), op.dims(op.result.shape))
    dims = range(len(sizes))
    for d in reversed(dims) if math.prod(steps) >= math.prod(sizes) else dims:
        x = window_sums(op, x, 2 + d, 2 + len(sizes), windows[d], opmath(op.result.dtype))
    return x


def _windows_of(
    op: Builder, interpolation: Interpolation, sizes: Sequence[Any], steps: Sequence[Any], given: Sequence[Any]
) -> list[Windows] | None:
    """Along each dimension; None where a size is symbolic. ``given`` are whether corners are aligned, and factors."""
    if not all(isinstance(n, int) for n in (*sizes, *steps)):
        return None
    align_corners, *factors = given
    factors = [*factors, *[None] * (len(sizes) - len(factors))]
    dtype = opmath(op.result.dtype)
    along = zip(sizes, steps, [align_corners] * len(sizes), factors, strict=True)
    return [interpolation(*each, dtype) for each in along]


def _register(name: str, rank: int, can_align: bool, interpolation: Interpolation) -> None:
    @lowering(getattr(aten, name).default)
    @in_float32
    def upsample(op: Builder, x: ir.Value, output_size: Sequence[Any], *given: Any) -> ir.Value:
        """upsample_bilinear2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, ...)"""
        sizes = shape_of(x)[-rank:]
        windows = _windows_of(op, interpolation, sizes, output_size, given if can_align else (False, *given))
        return _interpolated(op, x, sizes, output_size, windows)

    @lowering(getattr(aten, f"{name}_backward").default)
    @in_float32
    def upsample_backward(
        op: Builder, grad: ir.Value, output_size: Sequence[Any], input_size: Sequence[Any], *given: Any
    ) -> ir.Value:
        """upsample_bilinear2d_backward(Tensor grad_output, SymInt[2] output_size, SymInt[4] input_size, ...)"""
        sizes = input_size[2:]
        windows = _windows_of(op, interpolation, sizes, output_size, given if can_align else (False, *given))
        turned = windows and [each.transposed(size) for each, size in zip(windows, sizes, strict=True)]
        return _interpolated(op, grad, output_size, sizes, turned)


for _name, _about in _OPS.items():
    _register(_name, *_about)
