"""Tensors filled with one number, that read another tensor for nothing but its size, dtype and device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from dort_compare.backends.calls import add_call

aten = torch.ops.aten

_NUMBERS: Mapping[Any, int | None] = {
    aten.new_zeros.default: 0, aten.zeros_like.default: 0, aten.new_ones.default: 1, aten.ones_like.default: 1,
    aten.new_full.default: None, aten.full_like.default: None,
}  # fmt: skip
"""What each of these writes everywhere; None: its last positional argument, by their schemas."""


def fill_apart(graph: fx.Graph) -> None:
    """Lets them read no tensor at all, where the size is known, so that what is made of them is constant."""
    for node in [*graph.nodes]:
        if node.target in _NUMBERS:
            like, number = node.meta["val"], _NUMBERS[node.target]
            number = node.args[-1] if number is None else number
            if like.is_contiguous() and all(isinstance(each, (int, float)) for each in (*like.shape, number)):
                options = {"dtype": like.dtype, "device": like.device, "pin_memory": False}
                with graph.inserting_before(node):
                    filled = add_call(graph, node, aten.full.default, [*like.shape], number, **options)
                node.replace_all_uses_with(filled)
                graph.erase_node(node)
