"""An FX graph on torch's kernels, with some of its half-precision nodes kept in float32."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dort_compare.trace.eager import Interpreter
from dort_compare.trace.float64 import Float64, call_raised

HALF = (torch.float16, torch.bfloat16)


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
        return any(_is_half(t) and g.dtype not in HALF for g, t in zip(given, traced, strict=True))


class Survey(Interpreter):
    """Runs a graph as it is and sorts its nodes by name: those that are ``rounding`` to half precision, as casts do and
    what float32 makes something else of on the same operands, and those that are ``exact``.
    """

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.rounding: set[str] = set()
        self.exact: set[str] = set()

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.op == "call_function":
            (self.rounding if self._rounds(n, value) else self.exact).add(n.name)
        return value

    def _rounds(self, node: fx.Node, value: Any) -> bool:
        halves = [_is_half(leaf) for leaf in pytree.tree_leaves(value)]
        if not any(halves):
            return False
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.env.__getitem__)
        if any(isinstance(a, torch.Tensor) and a.is_floating_point() and a.dtype not in HALF for a in args):
            return True  # a cast may round nothing now and yet be where the values leave float32
        wide = pytree.tree_leaves(call_in_float32(node.target, args, kwargs))
        pairs = [(v, w) for v, w, half in zip(pytree.tree_leaves(value), wide, halves, strict=True) if half]
        return not all(torch.equal(v.float().nan_to_num(), w.nan_to_num()) for v, w in pairs)


class Referee(Float64):
    """A graph in float64 alone; ``largest`` holds the largest finite number of each value that is float16 in torch."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.largest: dict[str, float] = {}

    def run_node(self, n: fx.Node) -> Any:
        self.node = n
        value, traced = super().run_node(n), n.meta.get("val")
        if isinstance(traced, torch.Tensor) and traced.dtype == torch.float16 and value.numel():
            self.largest[n.name] = value.nan_to_num(0, 0, 0).abs().max().item()
        return value


def as_traced(value: Any, node: fx.Node) -> Any:
    """``value`` with what is wider than torch traced for ``node`` rounded to half precision."""

    def rounded(each: Any, traced: Any) -> Any:
        return each.to(traced.dtype) if _is_half(traced) and isinstance(each, torch.Tensor) else each

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
    return value.float() if _is_half(value) else value


def _is_half(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in HALF
