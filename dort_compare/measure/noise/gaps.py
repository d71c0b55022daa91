"""How far each element of one tensor lies from that of another: whether few of them make the floor of all."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

import torch

from dort_compare.dtypes import HALF
from dort_compare.measure.distance.distances import Distance
from dort_compare.measure.noise.floor import MOSTLY_NOISE

_NONE, _LARGEST, _UNMATCHED = -128, 120, 127
_CALM = 8
"""One element in so many is taken to be no wild one..."""
_WILD = 3
"""...and what lies two to the power of this times as far apart to be one."""
_FEW = 16
"""One element in so many may stray: a rounding may cross a threshold there that it crosses in no sample."""
_AS_FAR = 4.0
"""So many times as far from float64 as one right value may another lie."""


@dataclass(frozen=True)
class Gaps:
    """The gaps of all elements, a byte each.

    ``exponents`` is a flat int8 tensor of the elements in row-major order: a gap lies below two to the power of its
    exponent, and not below half of that, up to 120; -128 where there is none, 127 where NaN or inf has no match on the
    other side.
    """

    exponents: torch.Tensor

    @classmethod
    def between(cls, expected: torch.Tensor, got: torch.Tensor, times: float = 1.0, least: float = 0.0) -> Gaps:
        """The gaps between two tensors of one shape, so many ``times`` as wide; up to ``least`` there is none."""
        dtype = torch.complex128 if expected.is_complex() or got.is_complex() else torch.float64
        one, other = (side.detach().to("cpu", dtype) for side in (expected, got))
        gap = (other - one).abs().mul_(times)
        exponents = torch.frexp(gap).exponent.clamp_(_NONE + 1, _LARGEST)
        matched = (one == other) | (one.isnan() & other.isnan())
        exponents.masked_fill_(~gap.isfinite(), _UNMATCHED).masked_fill_(matched | (gap <= least), _NONE)
        return cls(exponents.to(torch.int8).flatten())

    def __or__(self, other: Gaps) -> Gaps:
        return Gaps(torch.maximum(self.exponents, other.exponents))

    @property
    def calm(self) -> float | None:
        """The widest gap of calm elements: up to 8 times the gap that an eighth of those that have one stays below. All
        others are wild, those without a match too; None where there are none."""
        found = self.exponents[self.exponents != _NONE]
        numbers = found[found != _UNMATCHED]
        if not numbers.numel():
            return 0.0 if found.numel() else None
        level = int(numbers.kthvalue(numbers.numel() // _CALM + 1).values) + _WILD
        return 2.0 ** int(numbers[numbers <= level].max()) if (found > level).any() else None

    def stray(self, known: Gaps, calm: float, level: float) -> bool:
        """Whether more than one in sixteen of the elements whose ``known`` gaps are ``calm`` lies further than
        ``level``."""
        are_calm = ~known.beyond(calm)
        return int((self.beyond(level) & are_calm).sum()) * _FEW > int(are_calm.sum())

    def beyond(self, level: float) -> torch.Tensor:
        """Which of the gaps surely are no less than ``level``."""
        return self.exponents > (min(math.ceil(math.log2(level)), _LARGEST) if level else _NONE)


def hiding_elements(
    floor: Callable[[float], float],
    found: Distance,
    expected: torch.Tensor,
    got: torch.Tensor,
    exact: torch.Tensor,
    *right: torch.Tensor,
) -> torch.Tensor | None:
    """Elements for which roundings make ``right`` values lie far from ``exact``, where others hide behind them.

    They do where more than one in sixteen of the others lies, in ``got``, further from ``expected`` (by ``found``) than
    the ``floor`` of what the largest error of those is. A mask in the shape of the values; None where none hide.
    """
    if (found.mean_abs or 0.0) * _FEW * _CALM <= floor(0.0):  # too few can lie beyond any floor
        return None
    known = functools.reduce(operator.or_, (Gaps.between(exact, value, _AS_FAR) for value in right))
    calm = known.calm
    if calm is None or not Gaps.between(expected, got).stray(known, calm, floor(calm / _AS_FAR)):
        return None
    return known.beyond(calm).view(expected.shape).to(expected.device)


def is_referee(
    exact: torch.Tensor, expected: torch.Tensor, error: float, scale: float, precision: torch.dtype | None
) -> bool:
    """Whether the float64 value ``exact`` can say what of torch's own, the ``expected``, is noise.

    ``error`` is the largest gap between them, ``scale`` the largest element of torch's. Where more than some wild
    elements lie further apart than a tenth of that, float64 is of another computation, or one sample of roundings that
    were amplified. It is a measure all the same where everything cancels, so that torch's value is all noise, and in
    half precision, which often holds no more.
    """
    if precision in HALF or error <= MOSTLY_NOISE * scale:
        return True
    error = Gaps.between(exact, expected).calm or error
    return error <= MOSTLY_NOISE * scale or float(torch.nan_to_num(exact).abs().max()) <= MOSTLY_NOISE * error
