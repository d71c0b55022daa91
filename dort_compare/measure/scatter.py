"""How far results scatter when every rounding on the way falls by chance: a floor where errors are amplified."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from dort_compare.measure.metrics import Distance, distance
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.trace import Outcome

SAMPLES = 16
"""So many at most. The second half are wide: a threshold that only larger roundings cross shows in no other."""
_WIDE_FROM = 8
"""A threshold that a rounding crosses every second time is missed once in 256."""
_SAFETY = 4.0
"""How much further than the widest of a few samples a right result may lie."""
_WIDE, _WIDE_SAFETY = 4.0, 1.25
"""How large the roundings of wide samples are, and how much further than those a right result may lie: a jump over a
threshold is as far in each, but for roundings."""


def roundings_of(sample: int) -> float:
    """How many times its size every rounding of a sample is; samples are counted from 0."""
    return 1.0 if sample < _WIDE_FROM else _WIDE


@dataclass(frozen=True)
class Scatter:
    """What samples have shown of one value.

    ``floor`` is the noise floor, in the unit of the value; ``is_wild`` says that NaN or inf came or went in a sample.
    """

    floor: float = 0.0
    is_wild: bool = False

    @classmethod
    def of(cls, value: torch.Tensor, shown: torch.Tensor, sample: int) -> Scatter:
        """What a sample has ``shown``. Integers and booleans that differ at all scatter without bounds: they count, or
        choose."""
        gap = distance(value, shown)
        if gap.max_abs is None or not (value.is_floating_point() or gap.equal):
            return cls(math.inf, gap.finding is not None)
        safety = _SAFETY if sample < _WIDE_FROM else _WIDE_SAFETY
        return cls(safety * float(gap.max_abs), gap.finding is not None)

    def __or__(self, other: Scatter) -> Scatter:
        return Scatter(max(self.floor, other.floor), self.is_wild or other.is_wild)

    def covers(self, gap: Distance) -> bool:
        """Whether a right result may lie that far off; never one of another dtype or shape."""
        if gap.finding is not None and (not self.is_wild or gap.finding.startswith(("dtype ", "shape "))):
            return False
        return gap.max_abs is not None and gap.max_abs <= self.floor


Scatters = Mapping[tuple[str, str], Scatter]
"""By kind and name of an output or gradient."""


def outcome_scatters(reference: Outcome, shown: Outcome, sample: int, before: Scatters) -> Scatters:
    """``before`` with what one more sample has ``shown`` of the outputs and gradients."""
    found = dict(before)
    both = {"output": (reference.outputs, shown.outputs), "gradient": (reference.gradients, shown.gradients)}
    for kind, (values, others) in both.items():
        for name in values.keys() & others.keys():
            if values[name].shape == others[name].shape:
                scatter = Scatter.of(values[name], others[name], sample)
                found[kind, name] = found.get((kind, name), Scatter()) | scatter
    return found


def within(rows: Sequence[OutcomeRow], scatters: Scatters) -> tuple[OutcomeRow, ...]:
    """The rows, those ok too that right results scatter as far as."""
    return tuple(_within(row, scatters.get((row.kind, row.name), Scatter())) for row in rows)


def _within(row: OutcomeRow, scatter: Scatter) -> OutcomeRow:
    if row.ok or row.distance is None or not scatter.covers(row.distance):
        return row
    return replace(row, ok=True, noise_floor=scatter.floor)
