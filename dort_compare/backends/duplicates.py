"""Calls of a joint graph that are made twice, as the forward and the backward pass often make the same."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

from dort_compare.backends.calls import has_effect
from dort_compare.node_meta import MERGED, PLACE, metas_of
from dort_compare.views import memories

_EQUAL_IS_SAME = (fx.Node, int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


def merge_duplicates(graph: fx.Graph) -> None:
    """Lets calls of one of torch's operators with the same arguments be one call.

    Torch's own pass takes -0.0 for 0.0, and loads all of inductor. Results that share no memory in eager stay apart, as
    do draws, sizes that only a run knows, what a write lies between, and operators that torch knows nothing about.
    """
    returned = memories(graph.output_node().all_input_nodes)
    made: dict[Hashable, fx.Node] = {}
    for place, node in enumerate([*graph.nodes]):
        node.meta[PLACE] = place
        if _writes(node):
            made.clear()
        elif _gives_the_same_again(node) and returned.isdisjoint(memories([node])):
            first = made.setdefault(_call(node), node)
            if first is not node:
                first.meta.setdefault(MERGED, []).extend(metas_of(node))
                node.replace_all_uses_with(first)
                graph.erase_node(node)


def _writes(node: fx.Node) -> bool:
    is_check = isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.is_mutable
    return node.is_impure(impure_random=False) and not is_check


def _gives_the_same_again(node: fx.Node) -> bool:
    is_pythons = node.op == "call_function" and not isinstance(node.target, torch._ops.OperatorBase)
    return (is_pythons or not has_effect(node)) and not node.is_impure() and not node.meta.get("unbacked_bindings")


def _call(node: fx.Node) -> Hashable:
    return node.target, map_aggregate((node.args, node.kwargs), _told_apart)


def _told_apart(argument: Any) -> Any:
    """What equals that of another argument only where the two are the same: 1, 1.0 and True equal, and so do zeros."""
    if isinstance(argument, float | complex):
        return type(argument), repr(argument)
    return type(argument), argument if isinstance(argument, _EQUAL_IS_SAME) else id(argument)
