"""Elements that roundings move far more than others, or out of the range of their dtype: no measure for the rest."""

from __future__ import annotations

import functools
import itertools

import torch

from dort_compare.dtypes import coarsest
from dort_compare.measure.noise.by_element import works_by_element
from dort_compare.measure.noise.in_float64 import InFloat64
from dort_compare.measure.noise.shake import SHAKEN, SHAKES, furthest_by_element, shaken, shaken_to
from dort_compare.measure.noise.small_parts import FAR
from dort_compare.trace.spacing import spacing


def wild_elements(op: InFloat64) -> torch.Tensor | None:
    """Where roundings move the result far more than elsewhere, so that what they move there is no measure for the rest;
    None where they move all of it about as far.

    A row of attention that a mask hides whole is one: its scores are -1e9, a rounding of which is 64, and its
    probabilities jump from equal ones to a single one. Numbers that lie at a threshold are others: 8 // 2 is 3 where 8
    moves down, and 7 // 2 is 3 in any case.
    """
    exact = op.exact
    if exact is None or not exact.numel():
        return None
    coarse = op.replay.between or (coarsest(op.replay.dtypes()) if op.replay.is_chain else None)
    outside, inside = shaken(coarse or torch.float32), shaken_to(op.computed_in)
    results = (op.moved(outside) for _ in range(2 * SHAKES))
    inner = () if op.replay.is_chain else (op.moved_inside(inside) for _ in range(2 * SHAKES))
    moved = furthest_by_element(exact, itertools.chain(results, inner))
    wild = moved * FAR >= moved.max()
    if moved.max() == 0 or wild.all():
        return None
    return wild if (moved[~wild] > 0).any() or (exact[~wild] != 0).any() else None


def overflows_by_chance(op: InFloat64, dtype: torch.dtype) -> torch.Tensor | None:
    """Where the result is beyond the range of ``dtype``, or NaN, or is not, as eight roundings move one of the operands
    of what combines elements; None where that is nowhere.

    The gradient of fused attention reads the logarithm of a sum of exponentials, rounded to float32: where scores are
    1e10 that is off by hundreds, which the exponential takes to infinity or to 0.
    """
    if works_by_element(op.replay, op.node):  # acos has no number just beyond 1, but one of 1
        return None
    unmoved, up, down = (functools.partial(_all_moved, roundings) for roundings in (0.0, SHAKEN, -SHAKEN))
    moved = (op.moved(change, name) for name in op.replay.names() for change in (up, down))
    results = [op.moved(unmoved), *moved]  # not the exact one: of integers that are cast first, the cast is no rounding
    within = [result.abs() <= torch.finfo(dtype).max for result in results if result is not None]
    if len({result.shape for result in within}) != 1:
        return None
    is_open = torch.stack(within).any(0) & ~torch.stack(within).all(0)
    return is_open if is_open.any() else None


def _all_moved(roundings: float, value: torch.Tensor) -> torch.Tensor:
    """All elements moved one way, by so many roundings to float32."""
    return value.double() + roundings * spacing(value, torch.float32)
