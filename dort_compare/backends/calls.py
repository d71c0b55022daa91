"""Calls in FX graphs: those that rewrites add, and which may be left out or moved."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from dort_compare.randomness import draws


def add_call(graph: fx.Graph, origin: fx.Node, target: Any, *args: Any, **options: Any) -> fx.Node:
    """A call where the graph inserts, with its value, that stems from where ``origin`` does."""
    with torch.no_grad():
        value = target(*fx.map_arg(args, lambda each: each.meta["val"]), **options)
    made = graph.call_function(target, args, options)
    made.meta = {**origin.meta, "val": value}
    made.meta.pop("tensor_meta", None)
    return made


def has_effect(node: fx.Node) -> bool:
    """Whether it can matter how often the node runs, or when; of what torch knows nothing about, it can."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return True
    return target._schema.is_mutable or draws(target)
