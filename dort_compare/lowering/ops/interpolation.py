"""Images made smaller or larger by interpolation between the nearest pixels, and the gradients of that."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.resampling import keys, scale_of
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import is_empty, shape_of
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
    """Between two neighbours; where the size stays, torch's kernels take each pixel, twice, whatever the factor."""
    if steps == size:
        return Windows.weighted(torch.arange(size).unsqueeze(1).expand(-1, 2), torch.tensor([[1, 0]]).expand(size, -1))
    scale = scale_of(size, steps, align_corners, factor, dtype)
    centre = _steps(steps, dtype, scale, align_corners).clamp(min=0)
    first = centre.long().clamp(max=size - 1)
    share = (centre - first).clamp(0, 1)
    places = torch.stack([first, (first + 1).clamp(max=size - 1)], 1)
    return Windows.weighted(places, torch.stack([1 - share, share], 1))


def _cubic(size: int, steps: int, align_corners: bool, factor: float | None, dtype: torch.dtype) -> Windows:
    scale = scale_of(size, steps, align_corners, factor, dtype)
    centre = _steps(steps, dtype, scale, align_corners)
    first = centre.floor()
    share = (centre - first).clamp(0, 1)
    weights = keys(torch.stack([share + 1, share, 1 - share, 2 - share], 1), -0.75)
    places = first.long().unsqueeze(1) + torch.arange(-1, 3)
    return Windows.weighted(places.clamp(0, size - 1), weights)


def _nearest(
    size: int, steps: int, align_corners: bool, factor: float | None, dtype: torch.dtype, offset: float = 0
) -> Windows:
    """torch computes these places in float32, of whatever dtype the image is."""
    scale = scale_of(size, steps, align_corners, factor, torch.float32)
    places = ((torch.arange(steps, dtype=torch.float32) + offset) * scale).long().clamp(max=size - 1)
    return Windows.weighted(places.unsqueeze(1), torch.ones(steps, 1))


def _nearest_by_size(size: int, steps: int, *given: Any) -> Windows:
    """As some of torch's kernels have it, which ask for no factor where the size stays or doubles."""
    if steps not in (size, 2 * size):
        return _nearest(size, steps, *given)
    places = torch.arange(steps) // (steps // size)
    return Windows.weighted(places.unsqueeze(1), torch.ones(steps, 1))


@dataclass(frozen=True)
class Kind:
    """An op of torch's: how many dimensions it has, how it interpolates forward and backward on CPU, and whether it can
    align corners."""

    rank: int
    forward: Interpolation
    backward: Interpolation
    can_align: bool

    def given(self, arguments: Sequence[Any]) -> tuple[bool, Sequence[Any]]:
        """Whether corners are aligned, and the factors, of what stands behind the sizes."""
        return (arguments[0], arguments[1:]) if self.can_align else (False, arguments)


_EXACT = functools.partial(_nearest, offset=0.5)
KINDS = {
    "upsample_linear1d": Kind(1, _linear, _linear, can_align=True),
    "upsample_bilinear2d": Kind(2, _linear, _linear, can_align=True),
    "upsample_trilinear3d": Kind(3, _linear, _linear, can_align=True),
    "upsample_bicubic2d": Kind(2, _cubic, _cubic, can_align=True),
    "upsample_nearest1d": Kind(1, _nearest, _nearest_by_size, can_align=False),
    "upsample_nearest2d": Kind(2, _nearest_by_size, _nearest_by_size, can_align=False),
    "upsample_nearest3d": Kind(3, _nearest, _nearest_by_size, can_align=False),
    **{f"_upsample_nearest_exact{rank}d": Kind(rank, _EXACT, _EXACT, can_align=False) for rank in (1, 2, 3)},
}


def _interpolated(
    op: Builder, x: ir.Value, sizes: Sequence[int], steps: Sequence[int], windows: Sequence[Windows]
) -> ir.Value:
    """``x`` of the last ``sizes`` as ``steps``: the last dimension first where it grows, last where it shrinks."""
    if is_empty(op.result):
        return op.Expand(op.const(0, opmath(op.result.dtype)), op.dims(op.result.shape))
    dims = range(len(sizes))
    for d in reversed(dims) if math.prod(steps) >= math.prod(sizes) else dims:
        x = window_sums(op, x, 2 + d, 2 + len(sizes), windows[d], opmath(op.result.dtype))
    return x


def _windows(
    op: Builder, along: Interpolation, sizes: Sequence[Any], steps: Sequence[Any], corners: bool, factors: Sequence[Any]
) -> list[Windows]:
    """Along each dimension, with ``corners`` aligned or not; ``factors`` may be given, or None."""
    if not all(isinstance(n, int) for n in (*sizes, *steps)):
        raise op.unsupported("a symbolic size")
    if not op.result.dtype.is_floating_point:
        raise op.unsupported("images of integers")
    dtype = opmath(op.result.dtype)
    each = itertools.zip_longest(sizes, steps, factors)
    return [along(size, step, corners, factor, dtype) for size, step, factor in each]


def _register(name: str, kind: Kind) -> None:
    @lowering(getattr(aten, name).default)
    @in_float32
    def upsample(op: Builder, x: ir.Value, steps: Sequence[Any], *given: Any) -> ir.Value:
        """upsample_bilinear2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, ...)"""
        sizes: Sequence[Any] = shape_of(x)[-kind.rank :]
        return _interpolated(op, x, sizes, steps, _windows(op, kind.forward, sizes, steps, *kind.given(given)))

    @lowering(getattr(aten, f"{name}_backward").default)
    @in_float32
    def upsample_backward(
        op: Builder, grad: ir.Value, steps: Sequence[Any], shape: Sequence[Any], *given: Any
    ) -> ir.Value:
        """upsample_bilinear2d_backward(Tensor grad_output, SymInt[2] output_size, SymInt[4] input_size, ...)

        The gradient of a bicubic image whose sizes stay is a copy in torch, whatever the factors.
        """
        sizes = shape[2:]
        if kind.backward is _cubic and list(sizes) == list(steps):
            return op.Identity(grad)
        windows = _windows(op, kind.backward, sizes, steps, *kind.given(given))
        turned = [each.transposed(size) for each, size in zip(windows, sizes, strict=True)]
        return _interpolated(op, grad, steps, sizes, turned)


for _name, _kind in KINDS.items():
    _register(_name, _kind)
