"""Indices of equal elements: torch's sorts leave open which of them comes first."""

from __future__ import annotations

import operator

import torch
from torch import fx

from dort_compare.trace import Replay
from dort_compare.trace.ties import keeps_dim, sorted_dim


def is_a_tie(replay: Replay, node: fx.Node, expected: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether both tensors of indices pick equal elements, each place at most once."""
    found = _sorted_operand(replay, node)
    if found is None:
        return False
    x, dim, drops_dim = found
    both = [indices.unsqueeze(dim) if drops_dim else indices for indices in (expected, value)]
    if not x.ndim or any(((i < 0) | (i >= x.shape[dim])).any() for i in both):
        return False
    theirs, ours = (x.gather(dim, indices).double() for indices in both)
    ordered = both[1].sort(dim).values
    is_unique = not (ordered.diff(dim=dim) == 0).any()
    return bool(is_unique) and torch.allclose(theirs, ours, rtol=0, atol=0, equal_nan=True)


def _sorted_operand(replay: Replay, node: fx.Node) -> tuple[torch.Tensor, int, bool] | None:
    """What was sorted, along which dimension, and whether the result lacks that one; None for any other node."""
    if node.target is not operator.getitem:
        return None
    call, position = node.args
    if not isinstance(call, fx.Node) or position != 1:
        return None
    dim = sorted_dim(call)
    if dim is None:
        return None
    x = replay.operand(call, 0)
    return None if x is None else (x, dim, not keeps_dim(call) and node.meta["val"].ndim < x.ndim)
