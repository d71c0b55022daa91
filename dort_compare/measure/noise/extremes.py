"""NaN, infinities and numbers near the largest of the dtype, which are no measure for the others."""

from __future__ import annotations

import torch

from dort_compare.dtypes import infinite_from
from dort_compare.measure.distance.blocks import blocks, finite_extent
from dort_compare.measure.distance.distances import Number
from dort_compare.measure.distance.metrics import deviation
from dort_compare.measure.noise.floor import rounding, rounding_of
from dort_compare.measure.noise.small_parts import FAR

_LEAST_MASK = 1024.0
"""Smaller masks are not looked for."""
_FAR_LARGER = 1024.0
"""So many times larger than all others are masks."""


def may_be_extreme(scale: float, dtype: torch.dtype) -> bool:
    """Whether a tensor whose largest element is ``scale`` holds numbers that stand for infinity."""
    return scale >= infinite_from(dtype)


def has_same_extremes(exact: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether NaN and the infinities stand where rounding float64's result puts them, to within a few roundings."""
    limit, few = torch.finfo(value.dtype).max, 1 + 4 * torch.finfo(value.dtype).eps
    for _, (true, found) in blocks([exact, value]):
        if not torch.equal(true.isnan(), found.isnan()):
            return False
        has_overflown = found.isinf() & ~((true.abs() * few >= limit) & (true.sign() == found.sign()))
        if (has_overflown | (found.isfinite() & (true.abs() > limit * few))).any():
            return False
    return True


def scale_but_for_extremes(value: torch.Tensor) -> float:
    """The largest finite |element| that does not stand for infinity."""
    limit = infinite_from(value.dtype)
    parts = (part for _, (part,) in blocks([value]))
    return max((finite_extent(part.masked_fill(part.abs() >= limit, 0)) for part in parts), default=0.0)


def but_for_extremes(expected: torch.Tensor, value: torch.Tensor) -> tuple[float, Number]:
    """The largest |element|, and the largest |expected - value|, but for what is extreme in both.

    Block by block: masks are added to the largest values of all.
    """
    scale, gap = 0.0, 0.0
    for _, (one, other) in blocks([expected, value]):
        extreme = extremes_of_both(one, other)
        pair = (one, other) if extreme is None else (one.masked_fill(extreme, 0), other.masked_fill(extreme, 0))
        scale, gap = max(scale, finite_extent(pair[0])), max(gap, deviation(*pair))
    return scale, gap


def extremes_of_both(expected: torch.Tensor, value: torch.Tensor) -> torch.Tensor | None:
    """Where both are beyond the limit and equal to within rounding; None where they are nowhere."""
    extreme = expected.abs() >= infinite_from(expected.dtype)
    if not extreme.any():
        return None
    same = extreme & (expected == value)
    if torch.equal(same, extreme):
        return same
    gap = (expected.double() - value.double()).abs()
    return same | (extreme & (gap <= rounding(expected.dtype) * expected.double().abs()))


def infinite_of_both(expected: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor | None:
    """Where two floating tensors of one dtype and shape both hold what stands for infinity, or what a mask of -1e9 or
    -1e4 leaves, and others lie apart; ``scale`` is the largest element. None where there is nothing of it."""
    if may_be_extreme(scale, expected.dtype):
        return extremes_of_both(expected, value)
    return masks_of_both(expected, value, scale)


def masks_of_both(expected: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor | None:
    """Where both hold what a mask of -1e9 or -1e4 leaves, equal to within rounding; ``scale`` is the largest element.

    These are elements of about that size where all others are 1024 times smaller. None where there are none, where they
    are not equal, or where the others lie no further apart than roundings of their own size.
    """
    large, rest = _masks(expected, scale)
    if large is None:
        return None
    gap = (expected.double() - value.double()).abs().nan_to_num(0.0, 0.0)
    is_right = gap <= rounding(expected.dtype) * expected.double().abs()
    is_apart = gap.masked_fill(large, 0).max().item() > rounding_of(expected.dtype, rest)
    return large if is_apart and bool(is_right[large].all()) else None


def masks(value: torch.Tensor) -> torch.Tensor | None:
    """Where a floating tensor holds what a mask leaves, below all that it lets through; None where that is nowhere."""
    large, _ = _masks(value, finite_extent(value) if value.numel() else 0.0)
    is_mask = large is not None and not large.all() and bool((value[large] < 0).all())
    return large if is_mask else None


def _masks(value: torch.Tensor, scale: float) -> tuple[torch.Tensor | None, float]:
    """Where elements have about the size of the largest, ``scale``, if all others are 1024 times smaller, and how large
    those are."""
    if scale < _LEAST_MASK:
        return None, scale
    size = value.abs().nan_to_num(0.0, 0.0)
    large = size * FAR > scale
    rest = size.masked_fill(large, 0).max().item()
    return (None if rest * _FAR_LARGER > scale else large), rest
