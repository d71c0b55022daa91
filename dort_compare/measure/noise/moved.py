"""The error of ONNX nodes where no float64 is at hand: noise is told by what roundings of their operands move."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch

from dort_compare.measure.distance.distances import Number
from dort_compare.measure.noise.extremes import but_for_extremes, extremes_of_both
from dort_compare.measure.noise.floor import LOOSE, rounding, rounding_of
from dort_compare.measure.noise.shake import furthest, furthest_by_element
from dort_compare.measure.noise.small_parts import FAR

_MAY_MOVE = {torch.float64: 8.0, torch.float32: 8.0, torch.float16: 2.0, torch.bfloat16: 2.0}
"""How much more another order of computing may change than a rounding of what went in does."""

_WAYS = 2
"""In so many ways operands move by chance, to see how far a result moves at most."""
_SURELY = 16
"""In so many, a lone element moves over a threshold that only some of them lead over."""
_FEW = 8
"""Of more elements than so many at a threshold, one moves over it in two ways."""
_MISSED = 8
"""One in so many elements at a threshold, at most, moves over it in none of all ways."""

Roundings = Callable[[torch.dtype | None, float], float]
"""What roundings add of themselves: in a dtype, to a value whose largest element is the number."""
Moved = Callable[[float, int], Iterable[torch.Tensor]]
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
    if not error.is_noise or precision is None or not expected.is_floating_point():
        return error
    of_roundings = of_one_op(precision, but_for_extremes(expected, value)[0])
    if error.noise_floor <= LOOSE * of_roundings or _count(expected, value, of_roundings) <= _FEW:
        return error
    jump = _elements_that_jump(base, moved, _MAY_MOVE[precision])
    if jump is None:
        return error

    def calm(roundings: float, ways: int) -> Iterator[torch.Tensor]:
        return _but_for(jump, moved(roundings, ways))

    sides = [each.masked_fill(jump, 0) for each in (expected, value, base)]
    left = moved_error(sides[0], sides[1], sides[2], calm, precision)
    departing = _count(sides[0], sides[1], left.noise_floor)
    return left if not left.is_noise and departing * _MISSED > int(jump.sum()) else error


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
    of them at once: over a threshold one jump is all there is. ``moved`` says what it is then, and is asked where that
    decides.
    """
    if not expected.is_floating_point():
        return _of_integers(expected, value, base, moved)
    scale, gap = but_for_extremes(expected, value)
    floor = max(roundings(precision, scale), rounding_of(expected.dtype, scale))
    if gap <= floor or precision is None:
        return MovedError(gap, floor)
    ways = _WAYS if _count(expected, value, floor) > _FEW else _SURELY
    sides, extreme = moved(_MAY_MOVE[precision], ways), extremes_of_both(expected, value)
    if extreme is not None:
        base, sides = base.masked_fill(extreme, 0), _but_for(extreme, sides)
    return MovedError(gap, floor + furthest(base, sides))


def _of_integers(expected: torch.Tensor, value: torch.Tensor, base: torch.Tensor, moved: Moved) -> MovedError:
    differ = expected != value
    firm = differ.clone()
    for each in moved(1.0, _SURELY):
        if each.shape == base.shape:
            firm &= each == base
    count = int(firm.sum())
    return MovedError(count if count * _MISSED > int(differ.sum()) - count else 0)


def _but_for(hidden: torch.Tensor, sides: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    return (each.masked_fill(hidden, 0) for each in sides if each.shape == hidden.shape)


def _count(expected: torch.Tensor, value: torch.Tensor, floor: float) -> int:
    """How many elements lie further apart than ``floor``."""
    return int(((expected.double() - value.double()).abs() > floor).sum())


def _elements_that_jump(base: torch.Tensor, moved: Moved, roundings: float) -> torch.Tensor | None:
    """Where so many roundings of the operands move a value over a threshold; None where that is everywhere, or nowhere:
    where they move it much further than one does."""
    one, many = (furthest_by_element(base, moved(each, _WAYS)) for each in (1.0, roundings))
    if not 0 < many.max() <= math.sqrt(roundings) * one.max():
        return None
    most = furthest_by_element(base, moved(roundings, _SURELY))
    jump = most * FAR >= most.max()
    return None if jump.all() else jump
