"""Parts of a tensor far smaller than its largest element, which is no measure for them: one token may be huge."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch

from dort_compare.measure.distance.blocks import BLOCK, blocks, finite_extent
from dort_compare.measure.noise.floor import rounding

FAR = 16.0
"""So many times smaller is far smaller."""
FAR_BEYOND = 64.0
"""So many times noise is more than a digit or two, which a part of a few elements loses that cancel."""
_NARROW, _ROW, _FEW = 2, 8, 64
"""Elements that a narrow part has at least, and any other, and that are looked at first."""


def small_parts(expected: torch.Tensor, value: torch.Tensor, allowed: float) -> Iterator[torch.Tensor]:
    """Masks, over two floating tensors of one shape, of parts that lie further apart than ``allowed``, as a share of
    their own largest element.

    A part is made of trailing dimensions, as few as hold `_ROW` elements, which is a row, mostly; or it is a column:
    what has one place in the last dimension, as a channel has. Each mask has parts of about one size, all far smaller
    than the largest element; none where there are none.
    """
    yield from _parts(expected, value, allowed, _ROW, expected.numel())


def narrow_parts(expected: torch.Tensor, value: torch.Tensor, allowed: float) -> Iterator[torch.Tensor]:
    """The same of rows and columns that hold fewer elements, two at least: of many that cancel there is one, mostly, in
    which a kernel has lost a digit or two."""
    yield from _parts(expected, value, allowed, _NARROW, _ROW - 1)


def _parts(
    expected: torch.Tensor, value: torch.Tensor, allowed: float, least: int, most: int
) -> Iterator[torch.Tensor]:
    """Masks of rows and columns of so many elements."""
    if not expected.numel():
        return
    largest = finite_extent(expected)
    size, width = _size_of_part(expected.shape, least), expected.shape[-1] if expected.dim() else 1
    if size < expected.numel() and size <= most:
        for mask in _small(expected.reshape(-1, size), value.reshape(-1, size), largest, allowed):
            yield mask.reshape(expected.shape)
    if width > 1 and least <= expected.numel() // width <= most:
        for mask in _small(expected.reshape(-1, width).t(), value.reshape(-1, width).t(), largest, allowed):
            yield mask.t().reshape(expected.shape)


def _small(parts: torch.Tensor, others: torch.Tensor, largest: float, allowed: float) -> Iterator[torch.Tensor]:
    """Masks over two matrices, of rows; a few elements of each tell that none is small, where that is so."""
    if (_extents(parts[:, :_FEW]) * FAR >= largest).all():
        return
    scales = _extents(parts)
    far = (scales * FAR < largest).nonzero()[:, 0]
    if not len(far):
        return
    sizes = scales[far].clamp(min=torch.finfo(parts.dtype).smallest_normal)
    apart = far[_gaps(parts, others)[far] > allowed * sizes]
    levels = _levels(largest, scales[apart])
    for level in levels.unique():
        mask = torch.zeros(len(parts), dtype=torch.bool, device=parts.device)
        mask[apart[levels == level]] = True
        yield mask[:, None].expand(parts.shape)


def small_elements(
    expected: torch.Tensor, value: torch.Tensor, allowed: float, inner: torch.Tensor
) -> Iterator[torch.Tensor]:
    """The same of single elements; ``inner`` (broadcast to their shape) says how large the numbers are that each is
    computed of, at most: kernels may lose their share of those."""
    largest = finite_extent(expected) if expected.numel() else 0.0
    computed_in = torch.promote_types(expected.dtype, torch.float32)
    smallest = allowed * torch.finfo(expected.dtype).smallest_normal
    levels = torch.zeros(expected.numel(), dtype=torch.uint8, device=expected.device)
    found: set[int] = set()
    for start, parts in blocks([expected, value, inner.to(expected.device).expand(expected.shape)]):
        one, other, of = (part.reshape(-1).to(computed_in) for part in parts)
        gaps, sizes = (one - other).abs_(), one.abs()
        lost = of.clamp(max=largest) * rounding(computed_in) + smallest
        apart = (sizes < largest / FAR) & (gaps > allowed * sizes + lost)
        if apart.any():
            here = _levels(largest, sizes.double()).clamp(max=255).where(apart, 0).to(torch.uint8)
            levels[start : start + len(here)] = here
            found.update(here.unique().tolist())
    for level in sorted(found - {0}):
        yield (levels == level).reshape(expected.shape)


def _levels(largest: float, sizes: torch.Tensor) -> torch.Tensor:
    """How often the largest is `FAR` times as large."""
    return ((largest / sizes.clamp(min=torch.finfo(torch.float64).tiny)).log() / math.log(FAR)).floor()


def _size_of_part(shape: torch.Size, least: int) -> int:
    sizes = itertools.accumulate(reversed(shape), lambda a, b: a * b, initial=1)
    return next((size for size in sizes if size >= least), math.prod(shape))


def _extents(parts: torch.Tensor) -> torch.Tensor:
    """The largest finite |element| of each part, in float64."""
    found = torch.maximum(parts.amax(-1), -parts.amin(-1)).double()
    strange = (~found.isfinite()).nonzero()[:, 0]
    if len(strange):
        found[strange] = parts[strange].double().abs().nan_to_num(0.0, 0.0).amax(-1)
    return found


def _gaps(parts: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """The largest finite |part - other| of each part, a block of memory at a time."""
    along = 1 if parts.stride(0) < parts.stride(1) else 0
    size = max(1, BLOCK // max(1, parts.shape[1 - along]))
    computed_in = torch.promote_types(parts.dtype, torch.float32)
    pairs = zip(parts.split(size, along), others.split(size, along), strict=True)
    found = [_extents(one.to(computed_in) - other.to(computed_in)) for one, other in pairs]
    return torch.stack(found).amax(0) if along else torch.cat(found)
