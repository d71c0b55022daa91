"""Calls that rewrites of FX graphs add."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


def add_call(graph: fx.Graph, origin: fx.Node, target: Any, *args: Any) -> fx.Node:
    """A call where the graph inserts, with its value, that stems from where ``origin`` does."""
    made = graph.call_function(target, args)
    with torch.no_grad():
        made.meta = {**origin.meta, "val": target(*fx.map_arg(args, lambda each: each.meta["val"]))}
    made.meta.pop("tensor_meta", None)
    return made
