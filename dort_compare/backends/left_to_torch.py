"""What is left to torch's own kernels, in graphs that serve, although ONNX Runtime could compute it.

Fused attention on CUDA: ONNX Runtime has no kernel of its gradient, and would write scores for every pair of positions,
in float32, to the memory that the fused kernels are there to save. Fourier transforms: of rows of 100 elements and more
torch's take a fifth of the time of products with matrices, or less (`benchmarks/transforms.py`), which is more than a
border between sessions costs where there are many rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import fx

from dort_compare.lowering.lower import TRANSFORMS
from dort_compare.signature import hints

aten = torch.ops.aten

ATTENTION = {
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_backward.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_efficient_attention_backward.default,
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_cudnn_attention_backward.default,
}
"""Torch has these for GPUs alone."""
FUSED, TRANSFORM = "torch's fused kernel", "torch's transform"
"""Why."""
_MANY = 2**13
"""Elements from which on a transform is left to torch."""


def left_to_torch(graph_module: fx.GraphModule) -> Mapping[str, str]:
    """The calls of a graph that run on torch's kernels because those are better, by name, and why."""
    reasons = {node.name: _reason(node) for node in graph_module.graph.nodes}
    return {name: reason for name, reason in reasons.items() if reason}


def _reason(node: fx.Node) -> str | None:
    if node.target in ATTENTION:
        return FUSED
    return TRANSFORM if node.target in TRANSFORMS and _is_large(node) else None


def _is_large(node: fx.Node) -> bool:
    sizes = hints(node.all_input_nodes[0].meta["val"].shape)
    return sizes is None or math.prod(sizes) >= _MANY
