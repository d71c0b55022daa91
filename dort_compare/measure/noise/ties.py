"""Orders that torch leaves open: which of equal elements a sort puts first, and what ``topk`` chooses unsorted."""

from __future__ import annotations

import operator

import torch
from torch import fx

from dort_compare.trace import Replay
from dort_compare.trace.ties import chooses_largest, is_unsorted, keeps_dim, sorted_dim


def is_another_order(node: fx.Node, expected: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether ``value`` holds in order what a call chose that may return it in any.

    In order, so that indices which are in order, too, belong to it.
    """
    call, position = _result_of(node)
    dim = None if call is None or position != 0 or not is_unsorted(call) else sorted_dim(call)
    return call is not None and dim is not None and _are_equal(_in_order(call, expected, dim), value)


def is_a_tie(replay: Replay, node: fx.Node, expected: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether two tensors of indices pick equal elements, each place at most once; ``value`` in order, where it may be
    in any."""
    found = _sorted_operand(replay, node)
    if found is None:
        return False
    x, call, dim, drops_dim = found
    both = [indices.unsqueeze(dim) if drops_dim else indices for indices in (expected, value)]
    if not x.ndim or any(((i < 0) | (i >= x.shape[dim])).any() for i in both):
        return False
    theirs, ours = (x.gather(dim, indices) for indices in both)
    is_unique = not (both[1].sort(dim).values.diff(dim=dim) == 0).any()
    is_ordered = is_unsorted(call) and _are_equal(_in_order(call, theirs, dim), ours)
    return bool(is_unique) and (is_ordered or _are_equal(theirs, ours))


def _in_order(call: fx.Node, chosen: torch.Tensor, dim: int) -> torch.Tensor:
    """What a ``topk`` has chosen as it would return it sorted; NaN counts as the largest."""
    return chosen.sort(dim, descending=chooses_largest(call)).values if chosen.ndim else chosen


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one.double(), other.double(), rtol=0, atol=0, equal_nan=True)


def _result_of(node: fx.Node) -> tuple[fx.Node | None, int]:
    """The call that a node takes a result of, and which one; None for any other node."""
    if node.target is not operator.getitem or not isinstance(node.args[0], fx.Node):
        return None, 0
    return node.args[0], node.args[1]  # type: ignore[return-value]


def _sorted_operand(replay: Replay, node: fx.Node) -> tuple[torch.Tensor, fx.Node, int, bool] | None:
    """What was sorted, by which call, along which dimension, and whether the result lacks that one; None for a node
    that is no tensor of indices."""
    call, position = _result_of(node)
    dim = None if call is None or position != 1 else sorted_dim(call)
    if call is None or dim is None:
        return None
    x = replay.first_operand(call)
    return None if x is None else (x, call, dim, not keeps_dim(call) and node.meta["val"].ndim < x.ndim)
