"""An FX graph on torch's kernels, with some of its half-precision nodes kept in float32."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dort_compare.dtypes import HALF, is_half_tensor
from dort_compare.trace.eager import Interpreter
from dort_compare.trace.float64 import call_raised


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
