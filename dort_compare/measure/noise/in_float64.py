"""An op in float64, on operands that torch had."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import fx

from dort_compare.dtypes import coarsest
from dort_compare.measure.noise.sums import sums_of_rounded
from dort_compare.trace import Replay
from dort_compare.trace.replay import Change


@dataclass(frozen=True)
class InFloat64:
    """An op in float64, with zeros in its result at the ``hidden`` elements, which are right on both sides."""

    replay: Replay
    node: fx.Node
    hidden: torch.Tensor | None

    @functools.cached_property
    def exact(self) -> torch.Tensor | None:
        """The result; None where torch has no such op."""
        return self._shown(self.replay.value(self.node, in_float64=True))

    def moved(self, change: Change, only: str | None = None) -> torch.Tensor | None:
        """The result where ``change`` has been applied to the operands, or to the ``only`` one of this name."""
        return self._shown(self.replay.value(self.node, in_float64=True, change=change, only=only))

    def moved_inside(self, change: Change) -> torch.Tensor | None:
        """The result where ``change`` has been applied to what the op goes through by its definition."""
        return self._shown(self.replay.by_definition(self.node, change))

    def of_rounded(self, dtype: torch.dtype) -> Iterable[torch.Tensor | None]:
        """The results of a sum in half precision where what it reads is rounded to that first."""
        return map(self._shown, sums_of_rounded(self.replay, self.node, dtype))

    @property
    def computed_in(self) -> torch.dtype:
        """The dtype that what the op goes through is rounded to: float32, its own finer one, or what its nodes round
        to."""
        own = torch.promote_types(coarsest(self.replay.dtypes()) or torch.float32, torch.float32)
        return self.replay.between or own

    def _shown(self, result: torch.Tensor | None) -> torch.Tensor | None:
        if result is None or self.hidden is None or result.shape != self.hidden.shape:
            return result
        return result.masked_fill(self.hidden, 0)
