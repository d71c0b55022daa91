"""Monte Carlo arithmetic: a graph in which every result that had to be rounded is rounded up or down by chance."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dort_compare.dtypes import HALF
from dort_compare.randomness import draws
from dort_compare.trace.float64 import REFUSALS, call_in_float64
from dort_compare.trace.spacing import spacing
from dort_compare.trace.ties import in_reverse, sorted_dim
from dort_compare.trace.watched import See, Watched
from dort_compare.views import is_view

_UNIT = 0.75
"""Of an element, times epsilon: 0.75 to 1.5 of the distance to its neighbour, and so rounded to that."""
_SUMS = (torch.ops.aten.sum.default, torch.ops.aten.sum.dim_IntList)
_REORDERED = 8
"""Roundings that sums in another order may differ by, where they are added up in the dtype of the result."""
_SHARES = (1.0, 1 / 16)
"""How many of the results move, from sample to sample: few roundings, like those of other kernels, stay near what was
computed and so near its thresholds, many show how far errors grow."""


def shaken(seed: int, roundings: float = 1.0) -> functools.partial[Any]:
    """A ``run_watched`` that shakes, the same way for the same seed and order of runs.

    Every op computes in float64 on its operands. A result that its own dtype cannot hold is rounded to the nearest and
    moved by one rounding up or down by chance; what is exact stays exact, so that masks, maxima and what is only moved
    hold still (D. S. Parker, Monte Carlo Arithmetic, 1997: random rounding of what is inexact). What was rounded to an
    integer moves only towards the exact result: 0 and 1 may bound what the next op takes. An op that combines elements
    in float32 moves by up to eight roundings, for other kernels add up in another order; a sum that is exactly zero by
    those of its largest term, for in another order the terms need not cancel to the last bit. So need not what the
    kernel of a gradient takes from one another on the way: of a gradient that is exactly zero, as that of attention to
    one token, its operands move by a rounding first. Sorts meet equal elements in reverse. Random ops draw what they
    draw unshaken.

    ``roundings`` is how many times its size every rounding is, but of those to half precision, large as they are.
    """
    chance = _Chance(torch.Generator().manual_seed(seed), _SHARES[seed % len(_SHARES)], roundings)
    return functools.partial(_run, chance)


@dataclass(frozen=True)
class _Chance:
    """Draws by how many roundings a value moves."""

    generator: torch.Generator
    share: float
    roundings: float

    def steps(self, like: torch.Tensor, width: int) -> torch.Tensor:
        """How far each element moves, up or down, in roundings: up to ``width`` of the size that ours have where chance
        picks it, else not at all."""
        is_half = like.dtype in HALF
        wide = torch.float32 if is_half else torch.float64
        chance = torch.rand(like.shape, generator=self.generator, dtype=wide, device="cpu").to(like.device)
        towards = chance * (2 / self.share) - 1
        steps = towards.sign() * (towards.abs() * width).ceil() * (1.0 if is_half else self.roundings)
        return torch.where(chance < self.share, steps, 0.0)


def _run(chance: _Chance, graph_module: fx.GraphModule, arguments: list[Any], see: See) -> Any:
    return _Shaken(graph_module, see, chance).run_on(arguments)


class _Shaken(Watched):
    def __init__(self, graph_module: fx.GraphModule, see: See, chance: _Chance) -> None:
        super().__init__(graph_module, see)
        self.chance = chance

    def run_node(self, n: fx.Node) -> Any:
        self.node = n
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        dim = sorted_dim(self.node)
        if dim is not None:
            return in_reverse(target, dim, args, kwargs)
        if not _rounds(self.node):
            return super().call_function(target, args, kwargs)
        try:
            exact = call_in_float64(target, args, kwargs)
        except REFUSALS:
            return super().call_function(target, args, kwargs)
        width = 1 if torch.Tag.pointwise in target.tags else _REORDERED
        if width > 1 and target.overloadpacket.__name__.endswith("_backward"):
            again = call_in_float64(target, *pytree.tree_map(self._jolted, (args, kwargs)))
            exact = pytree.tree_map(_where_zero, exact, again)
        values, form = pytree.tree_flatten(exact)
        traced = pytree.tree_leaves(self.node.meta["val"])
        pairs = zip(values, traced, strict=True)
        moved = [self._rounded(value, like, width) for value, like in pairs]
        if target in _SUMS:
            moved = [self._uncancelled(value, *args) for value in moved]
        return pytree.tree_unflatten(moved, form)

    def _jolted(self, operand: Any) -> Any:
        """An operand in float64, moved by one rounding to float32."""
        if not isinstance(operand, torch.Tensor) or not operand.is_floating_point():
            return operand
        steps = self.chance.steps(operand, 1)
        return _stepped(operand, steps, torch.float32)

    def _uncancelled(
        self, total: torch.Tensor, terms: torch.Tensor, dims: Sequence[int] | None = None, keepdim: bool = False
    ) -> torch.Tensor:
        """``total`` with what ``terms`` in another order may leave where it is zero; integers leave none."""
        if total.dtype in HALF or not terms.numel() or not terms.is_floating_point():
            return total
        if torch.equal(terms, terms.round()):
            return total
        largest = terms.abs().nan_to_num(0, 0, 0).amax(tuple(dims or ()), keepdim)
        rounding = _UNIT * torch.finfo(total.dtype).eps * largest
        return torch.where(total == 0, (self.chance.steps(total, _REORDERED) * rounding).to(total.dtype), total)

    def _rounded(self, exact: Any, traced: Any, width: int) -> Any:
        """``exact`` in the dtype that was traced, what that cannot hold moved by up to ``width`` roundings."""
        if not isinstance(exact, torch.Tensor) or not isinstance(traced, torch.Tensor) or exact.dtype == traced.dtype:
            return exact
        nearest = exact.to(traced.dtype)
        gap = exact - nearest
        if not gap.any():
            return nearest
        steps = self.chance.steps(nearest, 1 if traced.dtype in HALF else width)
        steps = torch.where((steps != 0) & (nearest == nearest.round()), gap.sign().to(steps.dtype), steps)
        moved = _stepped(nearest, steps, traced.dtype).to(traced.dtype)
        return torch.where((gap == 0) | ~moved.isfinite(), nearest, moved)


def _stepped(value: torch.Tensor, steps: torch.Tensor, precision: torch.dtype) -> torch.Tensor:
    """``value`` in float64, each element moved by so many roundings to ``precision``."""
    return value.double() + steps * _UNIT * spacing(value, precision)


def _where_zero(exact: Any, again: Any) -> Any:
    return torch.where(exact == 0, again, exact) if isinstance(exact, torch.Tensor) else exact


def _rounds(node: fx.Node) -> bool:
    """Whether the node is an operation of torch on values, whose float64 result may be put in the place of its own."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims") or is_view(node):
        return False
    if draws(target) or target._schema.is_mutable:
        return False
    values = [value for value in pytree.tree_leaves(node.meta.get("val")) if isinstance(value, torch.Tensor)]
    return any(value.is_floating_point() for value in values)
