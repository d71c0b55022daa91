"""The error of ONNX nodes where no float64 is at hand: noise is told by what roundings of their operands move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from dort_compare.measure.distance.metrics import Number, deviation
from dort_compare.measure.noise.extremes import but_for_extremes, extremes_of_both
from dort_compare.measure.noise.floor import rounding, rounding_of

_MAY_MOVE = {torch.float64: 8.0, torch.float32: 8.0, torch.float16: 2.0, torch.bfloat16: 2.0}
"""How much more another order of computing may change than a rounding of what went in does."""

Roundings = Callable[[torch.dtype | None, float], float]
"""What roundings add of themselves: in a dtype, to a value whose largest element is the number."""


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


def moved_error(
    expected: torch.Tensor,
    value: torch.Tensor,
    base: torch.Tensor,
    moved: Callable[[], Sequence[torch.Tensor]],
    precision: torch.dtype | None,
    roundings: Roundings = of_one_op,
) -> MovedError:
    """The error of ``value`` from the ``expected``, of one dtype and shape with it, without NaN or inf on one side.

    Noise are the ``roundings`` in ``precision``, the coarsest dtype on the way, and some times as much as what the
    nodes that made ``base`` make of operands ``moved`` by one rounding lies from it; asked for where it decides.
    """
    if not expected.is_floating_point():
        firm = [each == base for each in moved() if each.shape == base.shape]
        differ = expected != value
        return MovedError(int((torch.stack(firm).all(0) & differ if firm else differ).sum()))
    scale, gap = but_for_extremes(expected, value)
    floor = max(roundings(precision, scale), rounding_of(expected.dtype, scale))
    if gap <= floor or precision is None:
        return MovedError(gap, floor)
    extreme = extremes_of_both(expected, value)
    sides = [each for each in (base, *moved()) if each.shape == expected.shape]
    first, *others = sides if extreme is None else [side.masked_fill(extreme, 0) for side in sides]
    return MovedError(gap, floor + _MAY_MOVE[precision] * max((deviation(first, each) for each in others), default=0.0))
