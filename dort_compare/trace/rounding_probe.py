"""Which nodes of an FX graph round to half precision, and how large its values grow."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from dort_compare.dtypes import is_floating_tensor, is_half_tensor
from dort_compare.trace.eager import reproducible
from dort_compare.trace.float64 import Float64
from dort_compare.trace.kept import call_in_float32


class RoundingProbe(Float64):
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
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._drawn)
        if any(is_floating_tensor(leaf) and not is_half_tensor(leaf) for leaf in pytree.tree_leaves((args, kwargs))):
            return True
        try:
            narrow, wide = reproducible(node.target)(*args, **kwargs), call_in_float32(node.target, args, kwargs)
        except RuntimeError:  # a kernel may refuse random operands
            return True
        pairs = zip(pytree.tree_leaves(narrow), pytree.tree_leaves(wide), strict=True)
        return not all(torch.equal(n.float(), w) for n, w in pairs if is_half_tensor(n))

    def _drawn(self, operand: fx.Node) -> Any:
        """Random numbers between 1/2 and 2 in place of an operand, whose own may be zeros or have overflowed."""
        value, traced = self.env[operand], operand.meta.get("val")
        if not is_floating_tensor(value) or not isinstance(traced, torch.Tensor):
            return value
        generator = torch.Generator().manual_seed(value.numel())
        drawn = torch.rand(value.shape, generator=generator, device="cpu").mul_(1.5).add_(0.5)
        return drawn.to(value.device, traced.dtype)
