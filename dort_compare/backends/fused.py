"""What is left to torch's own kernels on CUDA although ONNX Runtime could compute it: fused attention.

ONNX Runtime has no kernel of its gradient, and would write scores for every pair of positions, in float32, to the
memory that the fused kernels are there to save.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import fx

aten = torch.ops.aten

REASON = "torch's fused kernel"
FUSED = {
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_backward.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_efficient_attention_backward.default,
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_cudnn_attention_backward.default,
}
"""Torch has these for GPUs alone."""


def left_to_torch(graph_module: fx.GraphModule) -> Mapping[str, str]:
    """The calls of a graph that run on torch's kernels because those are better, by name, and why."""
    return {node.name: REASON for node in graph_module.graph.nodes if node.target in FUSED}
