"""Integers and booleans that a rounding of half-precision operands decides."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import fx

from dort_compare.trace import Replay


def is_on_the_edge(replay: Replay, node: fx.Node, expected: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether both differ only where torch's own result changes as half-precision operands move by one unit."""
    nudged = [replay.value(node, change=_nudged(first)) for first in (-1, 1)]
    firm = torch.ones_like(expected, dtype=torch.bool)
    for other in nudged:
        if other is None or other.shape != expected.shape:
            return False
        firm &= other == expected
    return not (firm & (expected != value)).any().item()


def _nudged(first: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Moves half-precision operands by one unit in the last place, one up and the next down."""
    directions = itertools.cycle((first, -first))

    def nudge(value: torch.Tensor) -> torch.Tensor:
        if value.dtype not in (torch.float16, torch.bfloat16):
            return value
        return value.float() * (1 + next(directions) * torch.finfo(value.dtype).eps)

    return nudge
