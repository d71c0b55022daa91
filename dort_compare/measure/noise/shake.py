"""Operands moved by one rounding, to see how far a result moves with them."""

from __future__ import annotations

import torch

from dort_compare.dtypes import HALF
from dort_compare.measure.noise.extremes import masks
from dort_compare.trace.spacing import spacing


def shake(
    value: torch.Tensor, precision: torch.dtype, generator: torch.Generator, roundings: float = 1.0
) -> torch.Tensor:
    """``value`` (any shape and device) in float64, each element moved up or down at random by so many ``roundings`` of
    ``precision``."""
    signs = torch.randint(2, value.shape, generator=generator, device="cpu").to(value.device) * 2 - 1
    return value.double() + signs * roundings * spacing(value, precision)


def but_for_masks(value: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
    """``moved``, but for what stands for infinity in ``value``, as a mask of -1e9 does: an exponential makes 0 of it.

    A rounding of that is 64, of which a softmax makes anything in a row that is hidden whole. In half precision such a
    row is anything all the same: scores that one session keeps in float32 are rounded away between two.
    """
    hidden = None if value.dtype in HALF else masks(value)
    return moved if hidden is None else torch.where(hidden, value, moved)
