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
_FUSED = {
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_backward.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_efficient_attention_backward.default,
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_cudnn_attention_backward.default,
}


def left_to_torch(graph_module: fx.GraphModule) -> Mapping[str, str]:
    """The calls of a graph that run on torch's kernels because those are better, by name, and why."""
    calls = (node for node in graph_module.graph.nodes if node.target in _FUSED)
    return {call.name: REASON for call in calls if call.meta["val"][0].device.type == "cuda"}
