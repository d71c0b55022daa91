"""The error of ONNX nodes where no float64 is at hand: noise is told by what roundings of their operands move."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from dort_compare.measure.distance.metrics import Number, deviation
from dort_compare.measure.noise.extremes import but_for_extremes, extremes_of_both
from dort_compare.measure.noise.floor import rounding, rounding_of
from dort_compare.measure.noise.small_parts import FAR

_MAY_MOVE = {torch.float64: 8.0, torch.float32: 8.0, torch.float16: 2.0, torch.bfloat16: 2.0}
"""How much more another order of computing may change than a rounding of what went in does."""

_WAYS = 2
_WAYS_AT_THRESHOLDS = 16
_FEW = 8
"""What moves over a threshold one way only, by half of all roundings, does not in two ways in one case of four, and in
16 in one of 65536; of more than so many elements, one does in two ways."""
_LOOSE = 4.0
"""A floor of so many times what roundings of the result add is made by what they move."""
_MANY = 8.0
"""Roundings of operands that move a result no more than twice as far as one does where that is over a threshold."""

Roundings = Callable[[torch.dtype | None, float], float]
"""What roundings add of themselves: in a dtype, to a value whose largest element is the number."""
Moved = Callable[[float, int], Sequence[torch.Tensor]]
"""What a value is where the operands of what made it move by so many roundings, in so many ways."""


@dataclass(frozen=True)
class MovedError:
    """How far a value lies from the right one but for what stands for infinity in both, and what of it is noise.

    Of integers and booleans the gap is the number of those that differ and that no rounding of the operands changes.
    """

    gap: Number
    noise_floor: float = 0.0

    @property
    def is_noise(self) -> bool:
        return self.gap <= self.noise_floor


def of_one_op(precision: torch.dtype | None, scale: float) -> float:
    """What the roundings of one op may add."""
    return rounding(precision) * scale if precision else 0.0


def local_error_by_moving(
    expected: torch.Tensor, value: torch.Tensor, base: torch.Tensor, moved: Moved, precision: torch.dtype | None
) -> MovedError:
    """What one op, or a few, err: `moved_error`, but elements that roundings move over a threshold are no measure for
    the others: 2.5 may be rounded to 2 or 3, and 2.2 to 2 alone."""
    error = moved_error(expected, value, base, moved, precision)
    own = of_one_op(precision, but_for_extremes(expected, value)[0]) if expected.is_floating_point() else 0.0
    if not error.is_noise or error.noise_floor <= _LOOSE * own or precision is None:
        return error
    jump = _elements_that_jump(base, moved, _ways(expected, value, own))
    if jump is None:
        return error

    def calm(roundings: float, ways: int) -> list[torch.Tensor]:
        return [each.masked_fill(jump, 0) for each in moved(roundings, ways) if each.shape == jump.shape]

    sides = [each.masked_fill(jump, 0) for each in (expected, value, base)]
    left = local_error_by_moving(sides[0], sides[1], sides[2], calm, precision)
    return error if left.is_noise else left


def moved_error(
    expected: torch.Tensor,
    value: torch.Tensor,
    base: torch.Tensor,
    moved: Moved,
    precision: torch.dtype | None,
    roundings: Roundings = of_one_op,
) -> MovedError:
    """The error of ``value`` from the ``expected``, of one dtype and shape with it, without NaN or inf on one side.

    Noise are the ``roundings`` in ``precision``, the coarsest dtype on the way, and as much as ``base`` moves by some
    of them at once, or some times as much as by one if that is less: over a threshold one jump is all there is.
    ``moved`` says what it is then, and is asked where that decides.
    """
    if not expected.is_floating_point():
        firm = [each == base for each in moved(1.0, _WAYS) if each.shape == base.shape]
        differ = expected != value
        return MovedError(int((torch.stack(firm).all(0) & differ if firm else differ).sum()))
    scale, gap = but_for_extremes(expected, value)
    floor = max(roundings(precision, scale), rounding_of(expected.dtype, scale))
    if gap <= floor or precision is None:
        return MovedError(gap, floor)
    extreme, some = extremes_of_both(expected, value), _MAY_MOVE[precision]
    ways = _ways(expected, value, floor)
    one, at_once = (_furthest(base, moved(roundings, ways), extreme) for roundings in (1.0, some))
    return MovedError(gap, floor + min(some * one, at_once))


def _ways(expected: torch.Tensor, value: torch.Tensor, floor: float) -> int:
    """In how many ways one is sure to move over a threshold of the elements that lie further apart than ``floor``."""
    apart = int(((expected.double() - value.double()).abs() > floor).sum())
    return _WAYS if apart > _FEW else _WAYS_AT_THRESHOLDS


def _furthest(base: torch.Tensor, moved: Sequence[torch.Tensor], hidden: torch.Tensor | None) -> float:
    sides = [each for each in (base, *moved) if each.shape == base.shape]
    first, *others = sides if hidden is None else [side.masked_fill(hidden, 0) for side in sides]
    return max((deviation(first, each) for each in others), default=0.0)


def _elements_that_jump(base: torch.Tensor, moved: Moved, ways: int) -> torch.Tensor | None:
    """Where one rounding of the operands moves a value over a threshold; None where that is everywhere, nowhere, or all
    that is not 0. Whether one does shows in so many ``ways``."""
    if _jumps(base, moved, ways) is None:
        return None
    one = _jumps(base, moved, _WAYS_AT_THRESHOLDS)
    if one is None or (jump := one * FAR >= one.max()).all():
        return None
    return jump if (one[~jump] > 0).any() or (base[~jump] != 0).any() else None


def _jumps(base: torch.Tensor, moved: Moved, ways: int) -> torch.Tensor | None:
    """How far one rounding moves each element; None unless the furthest goes over a threshold: by many, none goes much
    further."""
    one, many = (_gaps(base, moved(roundings, ways)) for roundings in (1.0, _MANY))
    return one if one is not None and many is not None and 0 < many.max() <= 2 * one.max() else None


def _gaps(base: torch.Tensor, moved: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """How far each element moves at most."""
    gaps = [(each.double() - base.double()).abs().nan_to_num(0.0, 0.0) for each in moved if each.shape == base.shape]
    return functools.reduce(torch.maximum, gaps) if gaps else None
