"""An FX graph on torch's kernels, with some of its half-precision nodes kept in float32."""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dort_compare.dtypes import HALF, is_floating_tensor, is_half_tensor
from dort_compare.trace.eager import Interpreter, reproducible
from dort_compare.trace.float64 import Float64, call_raised


class Kept(Interpreter):
    """Computes the nodes of ``kept`` on float32 copies of their operands.

    Their results stay float32 for each other and are rounded to the dtype that torch traced for everyone else, but for
    the nodes of ``exact``, which round nothing and pass on what they are given.
    """

    def __init__(self, graph_module: fx.GraphModule, kept: Collection[str], exact: Collection[str]) -> None:
        super().__init__(graph_module)
        self._kept = kept
        self._exact = exact

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        if n.name in self._kept or (n.name in self._exact and any(self._is_wide(o) for o in n.all_input_nodes)):
            args, kwargs = fx.map_arg((n.args, n.kwargs), self.env.__getitem__)
            return call_in_float32(n.target, args, kwargs)
        args, kwargs = fx.map_arg((n.args, n.kwargs), lambda operand: as_traced(self.env[operand], operand))
        return self.call_function(n.target, args, kwargs)

    def _is_wide(self, operand: fx.Node) -> bool:
        given, traced = (pytree.tree_leaves(value) for value in (self.env[operand], operand.meta.get("val")))
        return any(is_half_tensor(t) and g.dtype not in HALF for g, t in zip(given, traced, strict=True))


class Referee(Float64):
    """A graph in float64 alone, which tells on the way what torch's execution does to its values.

    ``rounding`` names the nodes that round to half precision: casts, and those of which float32 makes something else on
    random operands; ``exact`` names all others. ``largest`` holds the largest finite number of every float16 value.
    """

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.rounding: set[str] = set()
        self.exact: set[str] = set()
        self.largest: dict[str, float] = {}

    def run_node(self, n: fx.Node) -> Any:
        value, traced = super().run_node(n), n.meta.get("val")
        if isinstance(traced, torch.Tensor) and traced.dtype == torch.float16 and value.numel():
            self.largest[n.name] = value.nan_to_num(0, 0, 0).abs().max().item()
        if n.op == "call_function":
            (self.rounding if self._rounds(n) else self.exact).add(n.name)
        return value

    def _rounds(self, node: fx.Node) -> bool:
        if node.target is operator.getitem or not any(map(is_half_tensor, pytree.tree_leaves(node.meta.get("val")))):
            return False
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._probe)
        if any(is_floating_tensor(leaf) and not is_half_tensor(leaf) for leaf in pytree.tree_leaves((args, kwargs))):
            return True
        try:
            narrow, wide = reproducible(node.target)(*args, **kwargs), call_in_float32(node.target, args, kwargs)
        except RuntimeError:  # a kernel may refuse random operands
            return True
        pairs = zip(pytree.tree_leaves(narrow), pytree.tree_leaves(wide), strict=True)
        return not all(torch.equal(n.float(), w) for n, w in pairs if is_half_tensor(n))

    def _probe(self, operand: fx.Node) -> Any:
        """Random numbers between 1/2 and 2 in place of an operand, whose own may be zeros or have overflowed."""
        value, traced = self.env[operand], operand.meta.get("val")
        if not is_floating_tensor(value) or not isinstance(traced, torch.Tensor):
            return value
        generator = torch.Generator().manual_seed(value.numel())
        drawn = torch.rand(value.shape, generator=generator, device="cpu").mul_(1.5).add_(0.5)
        return drawn.to(value.device, traced.dtype)


def as_traced(value: Any, node: fx.Node) -> Any:
    """``value`` with what is wider than torch traced for ``node`` rounded to half precision."""

    def rounded(each: Any, traced: Any) -> Any:
        return each.to(traced.dtype) if is_half_tensor(traced) and isinstance(each, torch.Tensor) else each

    traced = node.meta.get("val")
    if isinstance(value, (tuple, list)) and isinstance(traced, (tuple, list)):
        return [rounded(each, other) for each, other in zip(value, traced, strict=True)]
    return rounded(value, traced)


def call_in_float32(target: Any, args: Any, kwargs: Any) -> Any:
    """``target(*args, **kwargs)`` with half-precision operands and dtype arguments raised, and so the result."""
    return call_raised(target, args, kwargs, _raised)


def _raised(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float32 if value in HALF else value
    return value.float() if is_half_tensor(value) else value
