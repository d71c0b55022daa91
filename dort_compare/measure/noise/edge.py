"""Integers and booleans that a rounding of half-precision operands decides."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dort_compare.dtypes import HALF
from dort_compare.trace import Replay
from dort_compare.trace.spacing import spacing


def is_on_the_edge(replay: Replay, node: fx.Node, expected: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether both differ only where torch's own result changes as half-precision operands move by one unit."""
    if not _may_round(replay, node):
        return False
    nudged = [replay.value(node, change=_nudged(first)) for first in (-1, 1)]
    firm = torch.ones_like(expected, dtype=torch.bool)
    for other in nudged:
        if other is None or other.shape != expected.shape:
            return False
        firm &= other == expected
    return not (firm & (expected != value)).any().item()


def _may_round(replay: Replay, node: fx.Node) -> bool:
    """Whether one side may round what the other does not: nodes in between, operands of several dtypes, and numbers
    that half precision does not hold. A comparison of two tensors of one dtype is exact."""
    dtypes = {dtype for dtype in replay.dtypes() if dtype.is_floating_point}
    numbers = [leaf for leaf in pytree.tree_leaves((node.args, node.kwargs)) if type(leaf) in (int, float)]
    halves = [dtype for dtype in dtypes if dtype in HALF]
    inexact = any(
        torch.tensor(number, dtype=dtype, device="cpu").item() != number for number in numbers for dtype in halves
    )
    return replay.is_chain or len(dtypes) > 1 or inexact


def _nudged(first: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Moves half-precision operands by one unit in the last place, one up and the next down."""
    directions = itertools.cycle((first, -first))

    def nudge(value: torch.Tensor) -> torch.Tensor:
        if value.dtype not in HALF:
            return value
        return (value.double() + next(directions) * value.double().sign() * spacing(value, value.dtype)).float()

    return nudge
