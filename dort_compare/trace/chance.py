"""Chance: by how many roundings the elements of a value move, up or down."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from dort_compare.dtypes import HALF
from dort_compare.trace.spacing import spacing

_UNIT = 0.75
"""Of an element, times epsilon: 0.75 to 1.5 of the distance to its neighbour, and so rounded to that."""


@dataclass(frozen=True)
class Chance:
    """Moves a ``share`` of all elements, the same ones for the same ``seed``, by roundings that are so many
    ``roundings`` wide."""

    seed: int
    share: float
    roundings: float
    generator: torch.Generator = field(default_factory=torch.Generator)

    def begin(self, call: int) -> None:
        """Draws for one call from here on, known by a number."""
        self.generator.manual_seed(hash((self.seed, call)))

    def moved(self, exact: torch.Tensor, dtype: torch.dtype, held: torch.Tensor, width: int) -> torch.Tensor:
        """``exact`` in ``dtype``, but for what that has ``held`` moved by up to ``width`` roundings."""
        nearest = exact.to(dtype)
        if held.all():
            return nearest
        gap = exact - nearest
        steps = self._steps(nearest, width)
        steps = torch.where((steps != 0) & (nearest == nearest.round()), gap.sign().to(steps.dtype), steps)
        moved = _stepped(nearest, steps, dtype).to(dtype)
        return torch.where(held | ~moved.isfinite(), nearest, moved)

    def jolted(self, value: torch.Tensor, precision: torch.dtype) -> torch.Tensor:
        """``value`` in float64, moved by one rounding to ``precision``."""
        return _stepped(value, self._steps(value, 1), precision)

    def _steps(self, like: torch.Tensor, width: int) -> torch.Tensor:
        """How far each element moves, up or down, in roundings: up to ``width`` of the size that ours have where chance
        picks it, else not at all."""
        is_half = like.dtype in HALF
        wide = torch.float32 if is_half else torch.float64
        chance = torch.rand(like.shape, generator=self.generator, dtype=wide, device="cpu").to(like.device)
        towards = chance * (2 / self.share) - 1
        steps = towards.sign() * (towards.abs() * width).ceil() * (1.0 if is_half else self.roundings)
        return torch.where(chance < self.share, steps, 0.0)


def _stepped(value: torch.Tensor, steps: torch.Tensor, precision: torch.dtype) -> torch.Tensor:
    """``value`` in float64, each element moved by so many roundings to ``precision``."""
    return value.double() + steps * _UNIT * spacing(value, precision)
