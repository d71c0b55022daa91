"""How far results scatter when every rounding on the way falls by chance: a floor where errors are amplified."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from dort_compare.measure.metrics import Distance, distance
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.trace import Outcome

SAFETY = 4.0
"""How much further than the widest of a few samples a right result may lie."""
SAMPLES = 8
"""So many at most: a threshold that a rounding crosses every second time is missed once in 256."""


@dataclass(frozen=True)
class Scatter:
    """What samples have shown of one value: how far they lay off, and whether NaN or inf came or went in one."""

    width: float = 0.0
    is_wild: bool = False

    @classmethod
    def of(cls, value: torch.Tensor, sample: torch.Tensor) -> Scatter:
        """One sample. Integers and booleans that differ at all scatter without bounds: they count, or choose."""
        gap = distance(value, sample)
        if gap.max_abs is None or not (value.is_floating_point() or gap.equal):
            return cls(math.inf, gap.finding is not None)
        return cls(float(gap.max_abs), gap.finding is not None)

    def __or__(self, other: Scatter) -> Scatter:
        return Scatter(max(self.width, other.width), self.is_wild or other.is_wild)

    @property
    def floor(self) -> float:
        """The noise floor, in the unit of the values."""
        return SAFETY * self.width

    def covers(self, gap: Distance) -> bool:
        """Whether a right result may lie that far off; never one of another dtype or shape."""
        if gap.finding is not None and (not self.is_wild or gap.finding.startswith(("dtype ", "shape "))):
            return False
        return gap.max_abs is not None and gap.max_abs <= self.floor


Scatters = Mapping[tuple[str, str], Scatter]
"""By kind and name of an output or gradient."""


def outcome_scatters(reference: Outcome, sample: Outcome, before: Scatters) -> Scatters:
    """``before`` with what one more sample shows of the outputs and gradients."""
    found = dict(before)
    both = {"output": (reference.outputs, sample.outputs), "gradient": (reference.gradients, sample.gradients)}
    for kind, (values, samples) in both.items():
        for name in values.keys() & samples.keys():
            if values[name].shape == samples[name].shape:
                found[kind, name] = found.get((kind, name), Scatter()) | Scatter.of(values[name], samples[name])
    return found


def within(rows: Sequence[OutcomeRow], scatters: Scatters) -> tuple[OutcomeRow, ...]:
    """The rows, those ok too that right results scatter as far as."""
    return tuple(_within(row, scatters.get((row.kind, row.name), Scatter())) for row in rows)


def _within(row: OutcomeRow, scatter: Scatter) -> OutcomeRow:
    if row.ok or row.distance is None or not scatter.covers(row.distance):
        return row
    return replace(row, ok=True, noise_floor=scatter.floor)
