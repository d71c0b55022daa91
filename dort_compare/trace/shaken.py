"""Monte Carlo arithmetic: a graph in which every result that had to be rounded is rounded up or down by chance."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dort_compare.trace.watched import See, Watched
from dort_compare.trace.float64 import REFUSALS, call_in_float64
from dort_compare.views import is_view

_REORDERED = 8
"""Roundings that sums in another order may differ by, where the sum is rounded to the dtype that it is added up in."""


def shaken(seed: int) -> functools.partial[Any]:
    """A ``run_graph`` that shakes, the same way for the same seed and order of runs.

    Every op computes in float64 on its operands; the result is rounded to one of its two neighbours in its own dtype,
    the nearer one more often, and kept where it is representable: what is exact stays exact, so that masks, maxima and
    what is only moved hold still (D. S. Parker, Monte Carlo Arithmetic, 1997: random rounding). An op that combines
    elements in float32 or float64 moves by up to eight roundings, for other kernels add up in another order. Random
    ops draw what they draw unshaken.
    """
    return functools.partial(_run, torch.Generator().manual_seed(seed))


def _run(generator: torch.Generator, graph_module: fx.GraphModule, arguments: list[Any], see: See) -> Any:
    return _Shaken(graph_module, see, generator).run_on(arguments)


class _Shaken(Watched):
    def __init__(self, graph_module: fx.GraphModule, see: See, generator: torch.Generator) -> None:
        super().__init__(graph_module, see)
        self.generator = generator

    def run_node(self, n: fx.Node) -> Any:
        self.node = n
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if not _rounds(self.node):
            return super().call_function(target, args, kwargs)
        try:
            exact = call_in_float64(target, args, kwargs)
        except REFUSALS:
            return super().call_function(target, args, kwargs)
        width = 1 if torch.Tag.pointwise in target.tags else _REORDERED
        values, form = pytree.tree_flatten(exact)
        traced = pytree.tree_leaves(self.node.meta["val"])
        pairs = zip(values, traced, strict=True)
        return pytree.tree_unflatten([_rounded(value, like, width, self.generator) for value, like in pairs], form)


def _rounds(node: fx.Node) -> bool:
    """Whether the node is an operation of torch on values, whose float64 result may be put in the place of its own."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims") or is_view(node):
        return False
    if torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable:
        return False
    values = [value for value in pytree.tree_leaves(node.meta.get("val")) if isinstance(value, torch.Tensor)]
    return any(value.is_floating_point() for value in values)


def _rounded(exact: Any, traced: Any, width: int, generator: torch.Generator) -> Any:
    """``exact`` in the dtype that was traced, every element that it cannot hold rounded by chance."""
    if not isinstance(exact, torch.Tensor) or not isinstance(traced, torch.Tensor) or exact.dtype == traced.dtype:
        return exact
    nearest = exact.to(traced.dtype)
    unit = torch.finfo(traced.dtype).eps * (1 if traced.dtype in (torch.float16, torch.bfloat16) else width)
    chance = torch.rand(exact.shape, generator=generator, dtype=torch.float64).to(exact.device) - 0.5
    power = torch.exp2(torch.floor(torch.log2(exact.abs())))
    moved = (exact + chance * power * unit).to(traced.dtype)
    keep = (nearest.double() == exact) | ~moved.isfinite()
    return torch.where(keep, nearest, moved)
