"""An op by its definition, the simpler ops that torch decomposes it into, whose results may be changed on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from dort_compare.dtypes import is_floating_tensor
from dort_compare.trace.float64 import call_in_float64
from dort_compare.trace.fused_attention import PLAIN

aten = torch.ops.aten
_MUCH_LARGER = {aten.cumsum.default, aten.cumprod.default, aten.logcumsumexp.default}
"""Ops whose definition holds a square of what they read."""
_TAKE = {aten.clone.default, aten.copy.default, aten._to_copy.default, aten.where.self, aten.cat.default}
"""Ops that round nothing."""

_SATURATE = {aten.erf.default, aten.erfc.default, aten.tanh.default, aten.sigmoid.default}
"""Ops whose whole numbers are rounded: float64 has -1 for the error function of -6, which is 2e-17 more."""
_HALVES = 2.0**23
"""Below it float32 holds every half."""


def definition(target: Any) -> Callable[..., Any] | None:
    """The function of an op's arguments that torch has for it, or we for CUDA's attention; None where there is none."""
    return None if target in _MUCH_LARGER else PLAIN.get(target, decomposition_table.get(target))


def by_definition(target: Any, args: Any, kwargs: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """What the definition of an op makes of its arguments in float64, where ``change`` is applied to every floating
    result on the way; None where torch has no definition, or none for these arguments."""
    function = definition(target)
    if function is None:
        return None
    with Changing(change):
        result = call_in_float64(function, args, kwargs)
    return None if result is NotImplemented else result


class Changing(TorchDispatchMode):
    """Applies ``change`` to every floating result that an op computes, and not merely shows, takes or writes over.

    Whole numbers and halves stay as long as float32 holds them all, unless an op saturates: they are exact, and may be
    indices, as those of the pixels that `grid_sample` reads, or lead to such, as where it reflects at the edge of the
    image, half a pixel out.
    """

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._change = change

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        reads = any(map(is_floating_tensor, pytree.tree_leaves(args)))
        if not reads or func.is_view or func._schema.is_mutable or func in _TAKE:
            return result
        return pytree.tree_map(self._rounded if func in _SATURATE else self._changed, result)

    def _rounded(self, value: Any) -> Any:
        return self._change(value) if is_floating_tensor(value) else value

    def _changed(self, value: Any) -> Any:
        if not is_floating_tensor(value):
            return value
        twice = 2 * value
        stays = (twice == twice.round()) & (value.abs() < _HALVES)
        return torch.where(stays, value, self._change(value))
