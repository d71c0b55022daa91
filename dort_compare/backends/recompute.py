"""What the backward graph computes again, so that nothing has to be saved of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from dort_compare.backends.attention_row_sums import SAME_ELEMENTS
from dort_compare.backends.calls import has_effect
from dort_compare.fx_graph import is_pointwise
from dort_compare.layouts import elements
from dort_compare.lowering.foreign import foreign
from dort_compare.lowering.registry import registered

aten = torch.ops.aten

_LARGE = 2**20
"""Elements of probabilities from which on they are computed again: 4 MiB of float32."""


def compute_again(graph: fx.Graph) -> None:
    """Tells torch's partitioner what is not to be saved: attention's probabilities, and what no input has to do with.

    Probabilities are as large as all else together where sequences are long. A graph that has the scores too takes them
    a head at a time (`dort_compare.rewrites`), for which it has to see the mask, too. What depends on no input, ONNX
    Runtime computes once, when a session is made, if it is lowered.
    """
    lowered = registered()
    for node in _constants(graph):
        is_lowered = node.target in lowered and not foreign(node)
        again = CheckpointPolicy.MUST_RECOMPUTE if is_lowered else CheckpointPolicy.MUST_SAVE
        node.meta.setdefault("recompute", again)
    for node in _probabilities(graph):
        node.meta.setdefault("recompute", CheckpointPolicy.MUST_RECOMPUTE)


def _constants(graph: fx.Graph) -> Iterator[fx.Node]:
    found: set[fx.Node] = set()
    for node in graph.nodes:
        is_tensor = node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)
        if is_tensor and found.issuperset(node.all_input_nodes) and not has_effect(node):
            found.add(node)
            yield node


def _probabilities(graph: fx.Graph) -> Iterator[fx.Node]:
    for node in graph.find_nodes(op="call_function", target=aten._softmax.default):
        value = node.meta["val"]
        is_large = value.ndim == 4 and all(isinstance(n, int) for n in value.shape) and value.numel() >= _LARGE
        yield from (_since_product(node) or () if is_large else ())


def _since_product(softmax: fx.Node) -> list[fx.Node] | None:
    """The nodes from a matrix product to a softmax, if the others lay over it what all heads share."""
    found, node = [softmax], softmax.args[0]
    size, heads = softmax.meta["val"].numel(), softmax.meta["val"].shape[1]
    while isinstance(node, fx.Node):
        found.append(node)
        if node.target is aten.bmm.default:
            return found
        large = [each for each in node.all_input_nodes if _elements(each) * heads > size]
        if len(large) != 1 or not _is_elementwise(node):
            return None
        node = large[0]
    return None


def _elements(node: fx.Node) -> int:
    value = node.meta.get("val")
    return elements(value) or 0 if isinstance(value, torch.Tensor) else 0


def _is_elementwise(node: fx.Node) -> bool:
    return node.target in SAME_ELEMENTS or is_pointwise(node.target)
