"""Writes in place, as torch counts them, and those that it does not: ``Tensor._version`` stays as it was.

The latter are the steps of fused optimizers, which it can be made to count, and what batch norm writes of its running
statistics.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import torch
from torch.autograd.graph import increment_version
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

_Value = TypeVar("_Value")


def times_written(value: Any) -> int | None:
    """How often the memory of a tensor was written in place, never that of a number; None for an inference tensor, of
    which torch does not count it."""
    if not isinstance(value, torch.Tensor):
        return 0
    return None if value.is_inference() else value._version


class Taken(Generic[_Value]):
    """A tensor that somebody else owns, or a number, and how often its memory had been written when it was taken."""

    def __init__(self, value: _Value) -> None:
        self.value = value
        self.version = times_written(value)

    @property
    def is_counted(self) -> bool:
        """Whether torch counts what is written: not of inference tensors."""
        return self.version is not None

    @property
    def is_unwritten(self) -> bool:
        """Whether no write has been counted since."""
        return times_written(self.value) == self.version


@functools.cache
def count_fused_steps() -> None:
    """Has torch count them from now on; called by all who go by the count."""
    register_optimizer_step_post_hook(_count)


def may_be_statistics(tensor: torch.Tensor) -> bool:
    """Whether a tensor may be written by batch norm: a floating vector that is no parameter."""
    return tensor.ndim == 1 and tensor.is_floating_point() and not isinstance(tensor, torch.nn.Parameter)


def _count(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
    fused = [group["params"] for group in optimizer.param_groups if group.get("fused")]
    if fused:
        _increment([parameter for group in fused for parameter in group if parameter.grad is not None])


@torch.compiler.disable  # a compiled step would not count
def _increment(parameters: Sequence[torch.Tensor]) -> None:
    increment_version(parameters)
