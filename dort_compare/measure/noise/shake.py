"""Operands moved by one rounding, to see how far a result moves with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from dort_compare.dtypes import HALF
from dort_compare.measure.distance.metrics import deviation
from dort_compare.measure.noise.extremes import masks
from dort_compare.trace.spacing import spacing


def shake(
    value: torch.Tensor, precision: torch.dtype, generator: torch.Generator, roundings: float = 1.0
) -> torch.Tensor:
    """``value`` (any shape and device) in float64, each element moved up or down at random by so many ``roundings`` of
    ``precision``."""
    signs = torch.randint(2, value.shape, generator=generator, device="cpu").to(value.device) * 2 - 1
    return value.double() + signs * roundings * spacing(value, precision)


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
