"""Inherited error: how far a value lies from the right one, each computed from its own earlier values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from dort_compare.dtypes import in_parts
from dort_compare.measure.distance.distances import Distance, Number
from dort_compare.measure.distance.metrics import Measured, deviation, measure
from dort_compare.measure.noise.extremes import has_same_extremes, infinite_of_both
from dort_compare.measure.noise.gaps import Gaps, hiding_elements, is_referee

Floor = Callable[[float, Number | None], float]
"""The noise floor of a value: of its largest element, and of torch's error, None where that is not known."""


@dataclass(frozen=True)
class InheritedError:
    """The distance of a value from the expected one, and whether it is noise.

    What stands for infinity, and what roundings make wild, is no measure for the other elements: all is of those. Where
    they depart, the mask ``aside``, in the shape of the value, says which were left out. The distances from float64 are
    None where that is not known, or is no measure.
    """

    distance: Distance
    noise_floor: float
    is_noise: bool
    expected_vs_float64: Number | None = None
    got_vs_float64: Number | None = None
    aside: torch.Tensor | None = None

    def gaps(self, expected: torch.Tensor, got: torch.Tensor, floor: Floor) -> Gaps:
        """The gaps of the two sides' elements, of one shape, that are more than roundings of the last op explain."""
        expected, got = in_parts(expected), in_parts(got)
        if self.aside is not None:
            expected, got = (side.masked_fill(self.aside, 0) for side in (expected, got))
        return Gaps.between(expected, got, least=floor(float(self.distance.scale or 0), 0.0))


def inherited_error(
    expected: torch.Tensor,
    got: torch.Tensor,
    floor: Floor,
    precision: torch.dtype | None,
    exact: torch.Tensor | None = None,
    *right: torch.Tensor,
) -> InheritedError:
    """The error of ``got``, which whole graphs led to, from the ``expected``.

    It is noise up to the ``floor`` of the largest element. Where ``exact``, the float64 value, is known and of one
    shape with the others, it may lie as far from that as the floor of what the ``expected`` one and those that are
    ``right`` too err, unless float64 is of another computation (`is_referee`). ``precision`` is the coarsest dtype on
    the way, None of integers. Of complex tensors it is the error of their real and imaginary parts.
    """
    exact = None if exact is None else in_parts(exact)
    sides = _Sides(in_parts(expected), in_parts(got), exact, tuple(map(in_parts, right)))
    return _error(sides if sides.are_floating else _Sides(expected, got), floor, precision)


def is_noise(inherited: Distance, floor: float, error: Number | None = None) -> bool:
    """Whether the distance from float64, the ``error``, or without one that from torch, is within the floor and there
    is no finding."""
    if inherited.equal:
        return True
    if inherited.finding is not None or inherited.max_abs is None:
        return False
    return (inherited.max_abs if error is None else error) <= floor


@dataclass(frozen=True)
class _Sides:
    expected: torch.Tensor
    got: torch.Tensor
    exact: torch.Tensor | None = None
    right: tuple[torch.Tensor, ...] = ()

    @property
    def are_floating(self) -> bool:
        """Whether float64 is known, and all are floating and of one shape."""
        sides = (self.expected, self.got, *self.right, self.exact)
        return all(
            side is not None and side.is_floating_point() and side.shape == self.expected.shape for side in sides
        )

    def infinite(self, found: Distance) -> torch.Tensor | None:
        """What stands for infinity on both sides; None where that hides nothing."""
        if found.finding is not None or found.equal or not self.expected.is_floating_point():
            return None
        infinite = infinite_of_both(self.expected, self.got, float(found.scale or 0))
        return infinite if infinite is not None and infinite.any() else None

    def but_for(self, hidden: torch.Tensor) -> _Sides:
        expected, got, *right = (side.masked_fill(hidden, 0) for side in (self.expected, self.got, *self.right))
        exact = None if self.exact is None else self.exact.masked_fill(hidden, 0)
        return _Sides(expected, got, exact, tuple(right))


def _error(sides: _Sides, floor: Floor, precision: torch.dtype | None) -> InheritedError:
    measured = measure(sides.expected, sides.got, exact=sides.exact)
    floor_of = partial(floor, float(measured.inherited.scale or 0))
    error, hidden = _by_size(measured.inherited, floor_of), sides.infinite(measured.inherited)
    if hidden is None and sides.exact is not None:
        error, hidden = _by_float64(sides, sides.exact, measured, floor_of, precision)
    if hidden is None:
        return error
    rest = _error(sides.but_for(hidden), floor, precision)
    if rest.is_noise:
        return rest
    return replace(rest, aside=hidden if rest.aside is None else hidden | rest.aside)


def _by_size(found: Distance, floor_of: Callable[[Number | None], float]) -> InheritedError:
    allowed = floor_of(None)
    return InheritedError(found, allowed, is_noise(found, allowed))


def _by_float64(
    sides: _Sides,
    exact: torch.Tensor,
    measured: Measured,
    floor_of: Callable[[Number | None], float],
    precision: torch.dtype | None,
) -> tuple[InheritedError, torch.Tensor | None]:
    """The error, and which elements hide it, if any do."""
    found, theirs, ours = measured.inherited, measured.torch_vs_float64, measured.onnx_vs_float64
    right = max([float(theirs or 0), *(deviation(exact, value) for value in sides.right)])
    allowed = floor_of(right)
    error = InheritedError(found, allowed, is_noise(found, allowed, ours), theirs, ours)
    if found.finding is not None:
        return replace(
            error,
            expected_vs_float64=_told(exact, sides.expected, theirs),
            got_vs_float64=_told(exact, sides.got, ours),
        ), None
    if not error.is_noise:
        return error, None
    if not is_referee(exact, sides.expected, right, float(found.scale or 0), precision):
        return _by_size(found, floor_of), None
    return error, hiding_elements(floor_of, found, sides.expected, sides.got, exact, sides.expected, *sides.right)


def _told(exact: torch.Tensor, side: torch.Tensor, apart: Number | None) -> Number | None:
    """How far a side lies from float64; infinitely, where NaN and infinities stand elsewhere in it."""
    return apart if has_same_extremes(exact, side) else math.inf
