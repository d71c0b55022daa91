"""Operands moved by roundings, to see how far a result moves with them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import torch

from dort_compare.dtypes import HALF
from dort_compare.measure.distance.metrics import deviation
from dort_compare.measure.noise.extremes import masks
from dort_compare.trace.replay import Change
from dort_compare.trace.spacing import spacing

SHAKEN = 8.0
"""By how many roundings every operand moves, so that the result moves as far as a right kernel may err."""
SHAKES = 8
"""How often, at most, the operands of a result of few elements are moved: by chance it may not move with them once."""


def shake(
    value: torch.Tensor, precision: torch.dtype, generator: torch.Generator, roundings: float = 1.0
) -> torch.Tensor:
    """``value`` (any shape and device) in float64, each element moved up or down at random by so many ``roundings`` of
    ``precision``."""
    signs = torch.randint(2, value.shape, generator=generator, device="cpu").to(value.device) * 2 - 1
    return value.double() + signs * roundings * spacing(value, precision)


def shaken(dtype: torch.dtype, roundings: float = 1.0) -> Change:
    """Moves every element up or down at random, by so many roundings of ``dtype``, or of float64 where that is its
    own."""
    generator = torch.Generator().manual_seed(0)

    def moved(value: torch.Tensor) -> torch.Tensor:
        return shake(value, torch.float64 if value.dtype == torch.float64 else dtype, generator, roundings)

    return moved


def shaken_to(precision: torch.dtype, roundings: float = 1.0) -> Change:
    """Moves every element up or down at random, by so many roundings of ``precision``."""
    generator = torch.Generator().manual_seed(0)
    return functools.partial(shake, precision=precision, generator=generator, roundings=roundings)


def furthest(base: torch.Tensor, results: Iterable[torch.Tensor | None]) -> float:
    """The most that any element of ``results``, those of the shape of ``base``, lies from it."""
    return max((deviation(base, each) for each in _alike(base, results)), default=0.0)


def furthest_by_element(base: torch.Tensor, results: Iterable[torch.Tensor | None]) -> torch.Tensor:
    """The same of each element, in float64; 0 where it is not finite."""
    found = torch.zeros_like(base, dtype=torch.float64)
    for each in _alike(base, results):
        found = torch.maximum(found, (each.double() - base.double()).abs().nan_to_num(0.0, 0.0))
    return found


def _alike(base: torch.Tensor, results: Iterable[torch.Tensor | None]) -> Iterator[torch.Tensor]:
    return (each for each in results if each is not None and each.shape == base.shape)


def masks_unmoved(value: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
    """``moved``, but for what stands for infinity in ``value``, as a mask of -1e9 does: an exponential makes 0 of it.

    A rounding of that is 64, of which a softmax makes anything in a row that is hidden whole. In half precision such a
    row is anything all the same: scores that one session keeps in float32 are rounded away between two.
    """
    hidden = None if value.dtype in HALF else masks(value)
    return moved if hidden is None else torch.where(hidden, value, moved)
