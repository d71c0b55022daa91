"""How far results scatter when every rounding on the way falls by chance: a floor where errors are amplified."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch

from dort_compare.dtypes import in_parts
from dort_compare.errors import one_line
from dort_compare.measure.distance.distances import Distance
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.gaps import Gaps
from dort_compare.problems import level_of

_LOG = logging.getLogger("dort_compare.measure")
_Shown = TypeVar("_Shown")


class Sample(NamedTuple):
    """One run in which every rounding falls by chance.

    ``roundings`` says how many times its size each is, ``safety`` how much further than the widest of a few such
    samples a right result may lie.
    """

    roundings: float
    safety: float


SAMPLES = (Sample(1.0, 4.0),) * 8 + (Sample(4.0, 1.25),) * 8
"""So many at most. A threshold that a rounding crosses every second time is missed by eight once in 256; one that only
larger roundings cross shows in no other than the wide ones, where a jump over it is as far in each."""


def samples(
    asks: Callable[[], bool], run: Callable[[int, Sample], _Shown], where: str = ""
) -> Iterator[tuple[Sample, _Shown]]:
    """The samples with what ``run`` shows in each, given a seed and the sample, for as long as anything still ``asks``.

    They end where one fails, which is logged with ``where``.
    """
    for seed, sample in enumerate(SAMPLES):
        if not asks():
            return
        try:
            shown = run(seed, sample)
        except Exception as problem:  # noqa: BLE001  (sizes and checks that depend on data may not stand a rounding)
            told = "%sscatter is known of %d runs, the next one fails: %s"
            _LOG.log(level_of(problem), told, where, seed, one_line(problem))
            return
        yield sample, shown


@dataclass(frozen=True)
class Scatter:
    """What samples have shown of one value.

    ``floor`` is the noise floor, in the unit of the value; ``is_wild`` says that NaN or inf came or went in a sample.
    Integers and booleans count, or choose among what is nearly equal: how many of them differ is bounded too, by
    ``choices``. Of others the ``gaps`` tell whether few elements make the floor: it is none for the rest.
    """

    floor: float = 0.0
    is_wild: bool = False
    choices: float = 0.0
    gaps: Gaps | None = None

    @classmethod
    def of(cls, value: torch.Tensor, shown: torch.Tensor, sample: Sample) -> Scatter:
        """What a sample has ``shown`` of a value; both are of one shape."""
        value, shown = in_parts(value), in_parts(shown)
        gap = distance(value, shown)
        floor = sample.safety * float(gap.max_abs or 0)
        is_inexact = value.is_floating_point()
        choices = math.inf if is_inexact else sample.safety * (gap.different or 0)
        gaps = Gaps.between(value, shown, sample.safety) if is_inexact else None
        return cls(floor, gap.finding is not None, choices, gaps)

    def __or__(self, other: Scatter) -> Scatter:
        is_wild = self.is_wild or other.is_wild
        gaps = self.gaps | other.gaps if self.gaps and other.gaps else self.gaps or other.gaps
        return Scatter(max(self.floor, other.floor), is_wild, max(self.choices, other.choices), gaps)

    def floor_of(self, gaps: Gaps | None) -> float:
        """The noise floor of what has these ``gaps``: of the calm elements, where more than few of them stray."""
        calm = self._calm_but_astray(gaps)
        return self.floor if calm is None else calm

    def covers(self, gap: Distance, gaps: Gaps | None) -> bool:
        """Whether a right result may lie that far off; never one of another dtype or shape. ``gaps`` are those of its
        elements that are more than rounding explains without scatter."""
        if gap.finding is not None:
            is_known = self.is_wild and not gap.finding.startswith(("dtype ", "shape "))
            if not is_known or self._calm_but_astray(gaps) is not None:
                return False
        if gap.max_abs is None or gap.max_abs > self.floor or (gap.different or 0) > self.choices:
            return False
        return gap.max_abs <= self.floor_of(gaps)

    def _calm_but_astray(self, gaps: Gaps | None) -> float | None:
        """The widest gap of the calm elements, where more than few of them stray beyond it; None where they do not."""
        calm = self.gaps.calm if self.gaps else None
        if gaps is None or self.gaps is None or calm is None or not gaps.stray(self.gaps, calm, calm):
            return None
        return calm
