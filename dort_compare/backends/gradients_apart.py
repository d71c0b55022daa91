"""Gradients that a backward graph returns, each in memory of its own.

Autograd keeps the first gradient of a parameter as it comes and adds the next one to it in place. Where two gradients
are views of one tensor, as those of ``a`` and ``b`` in ``(a.view(4, 2) + b) * c``, each would be added to both.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import fx

from dort_compare.backends.calls import add_call
from dort_compare.layouts import hints
from dort_compare.views import history

aten = torch.ops.aten


def gradients_apart(backward: fx.GraphModule) -> None:
    """Copies what ``backward`` returns of memory that another of its results has too, but for the very same tensor."""
    graph, output = backward.graph, backward.graph.output_node()
    copies: dict[fx.Node, fx.Node] = {}
    kept: dict[fx.Node, list[fx.Node]] = defaultdict(list)
    for node in filter(_is_tensor, output.all_input_nodes):
        sources = [source for source in history(node)[1] if _is_tensor(source)]
        if any(_overlap(node, other) for source in sources for other in kept[source]):
            with graph.inserting_before(output):
                copies[node] = add_call(graph, node, aten.clone.default, node, memory_format=torch.contiguous_format)
        for source in sources:
            kept[source].append(node)
    if copies:
        output.args = (fx.map_arg(output.args[0], lambda node: copies.get(node, node)),)
        backward.recompile()


def _is_tensor(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _overlap(one: fx.Node, other: fx.Node) -> bool:
    """Whether two views of one tensor may have an element in common, by the span of memory of each."""
    first, second = _span(one.meta["val"]), _span(other.meta["val"])
    return first is None or second is None or not (first.stop <= second.start or second.stop <= first.start)


def _span(value: torch.Tensor) -> range | None:
    """Where the elements of a value lie in its storage; None where that is not known."""
    shape, stride, offset = hints(value.shape), hints(value.stride()), hints([value.storage_offset()])
    if shape is None or stride is None or offset is None:
        return None
    last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    return range(offset[0], offset[0] + (0 if 0 in shape else last + 1))
