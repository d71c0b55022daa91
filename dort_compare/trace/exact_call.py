"""A call in float64, and what its own dtypes hold of the results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dort_compare.dtypes import HALF, is_floating_tensor
from dort_compare.problems import raise_if_short
from dort_compare.trace.float64 import REFUSALS, call_in_float64

Held = torch.Tensor | None
"""Which elements of a result its dtype holds as they are; None of what never moves."""


@dataclass(frozen=True)
class ExactCall:
    """A call of an op with its results, one after the other, in float64, and what torch has ``traced`` for each."""

    target: Any
    args: Any
    kwargs: Any
    results: list[Any]
    form: pytree.TreeSpec
    traced: list[Any]

    @classmethod
    def of(cls, node: fx.Node, target: Any, args: Any, kwargs: Any) -> ExactCall:
        """Raises one of ``REFUSALS`` where torch does not compute it in float64."""
        results, form = pytree.tree_flatten(call_in_float64(target, args, kwargs))
        return cls(target, args, kwargs, results, form, pytree.tree_leaves(node.meta["val"]))

    @property
    def is_float64(self) -> bool:
        """Whether a result is of that dtype by itself."""
        return torch.float64 in map(_dtype, self.traced)

    @cached_property
    def held(self) -> list[Held]:
        """Which elements of each of the results the dtype holds that was traced."""
        coarse = self._of_float32() if self.is_float64 else None
        dtypes = map(_dtype, self.traced)
        return [_held(*each) for each in zip(self.results, dtypes, coarse or [None] * len(self.results), strict=True)]

    def where_inexact(self, again: Iterable[Any], *, of_integers: bool) -> list[Any]:
        """The results, but ``again`` where one has to be rounded or, but for what is made of integers, is zero in
        float32 or float64."""
        found = zip(self.results, again, self.traced, self.held, strict=True)
        return [_where_inexact(*each, of_integers) for each in found]

    def _of_float32(self) -> list[Any] | None:
        """What the op makes in float64 of operands that are rounded to float32; None where it refuses these."""
        operands = pytree.tree_map_only(torch.Tensor, _to_float32, (self.args, self.kwargs))
        try:
            return pytree.tree_leaves(call_in_float64(self.target, *operands))
        except REFUSALS as problem:
            raise_if_short(problem)
            return None


def _held(exact: Any, dtype: torch.dtype | None, coarse: Any) -> Held:
    """Of one result; ``coarse`` is what float64 makes of operands in float32, None where that is not known."""
    if dtype is None or not is_floating_tensor(exact):
        return None
    if dtype != exact.dtype:
        return exact == exact.to(dtype)
    if not is_floating_tensor(coarse) or coarse.shape != exact.shape:
        return None
    return (coarse == coarse.float()) | (exact == exact.round())


def _where_inexact(exact: Any, again: Any, traced: Any, held: Held, of_integers: bool) -> Any:
    """``again`` where ``exact`` has to be rounded or, but for what is made of integers, is zero in float32 or
    float64."""
    if held is None:
        return exact
    return torch.where(held if of_integers or traced.dtype in HALF else held & (exact != 0), exact, again)


def _to_float32(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.is_floating_point() else value


def _dtype(traced: Any) -> torch.dtype | None:
    return traced.dtype if is_floating_tensor(traced) else None
