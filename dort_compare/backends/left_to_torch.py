"""What is left to torch's own kernels, in graphs that serve, although ONNX Runtime could compute it.

Fused attention on CUDA: ONNX Runtime has no kernel of its gradient, and would write scores for every pair of positions,
in float32, to the memory that the fused kernels are there to save. Large activations and gradients on CUDA that are
several nodes of ONNX: each node reads and writes all of it, in float32, where torch's kernels do so once. Fourier
transforms: of rows of 100 elements and more torch's take a fifth of the time of products with matrices, or less
(`benchmarks/transforms.py`), which is more than a border between sessions costs where there are many rows. What ONNX
Runtime is slow at on the CPU (slow_in_onnx.py), and large products there in training (slow_products.py). In graphs that
are recorded as CUDA graphs, joins and splits of unequal parts: ONNX Runtime's kernels read their sizes from a buffer of
the CPU that is another's when they are launched again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from dort_compare.backends.slow_in_onnx import is_slow
from dort_compare.backends.slow_products import is_slow_product
from dort_compare.layouts import elements
from dort_compare.lowering.foreign import TRANSFORMS
from dort_compare.runtime.binding import device_of

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
PASSES = {
    aten.silu.default,
    aten.silu_backward.default,
    aten.mish.default,
    aten.mish_backward.default,
    aten.gelu_backward.default,
    aten._softmax_backward_data.default,
    aten._log_softmax_backward_data.default,
    aten.native_layer_norm_backward.default,
    aten.native_group_norm_backward.default,
}
"""What is several passes over its operand in ONNX Runtime."""
_JOINS, _SPLITS = {aten.cat.default}, {aten.split.Tensor, aten.split_with_sizes.default}
FUSED, TRANSFORM, UNEQUAL = "torch's fused kernel", "torch's transform", "torch's kernel, which can be recorded"
FASTER = "torch's kernel, which is faster"
"""Why."""
_MANY = 2**13
"""Elements from which on a transform is left to torch."""
_VERY_MANY = 2**22
"""Elements from which on several passes over them are left to torch."""


def left_to_torch(graph_module: fx.GraphModule, *, is_recorded: bool, is_training: bool) -> Mapping[str, str]:
    """The calls of a graph that run on torch's kernels because those are better, by name, and why."""
    reasons = {node.name: _reason(node, is_recorded, is_training) for node in graph_module.graph.nodes}
    return {name: reason for name, reason in reasons.items() if reason}


def _reason(node: fx.Node, is_recorded: bool, is_training: bool) -> str | None:
    if is_recorded and _is_unequal(node):
        return UNEQUAL
    if node.target in ATTENTION or (node.target in PASSES and _is_on_gpu(node) and _is_of(node, _VERY_MANY)):
        return FUSED
    if (is_slow(node) or (is_training and is_slow_product(node))) and not _is_on_gpu(node):
        return FASTER
    return TRANSFORM if node.target in TRANSFORMS and _is_of(node, _MANY, unknown=True) else None


def _is_unequal(node: fx.Node) -> bool:
    """Whether a call joins parts of different sizes, or splits a tensor in such."""
    if node.target in _JOINS:
        joined: Any = node.args[0]
        parts = [each.meta["val"] for each in joined]
    else:
        parts = node.meta["val"] if node.target in _SPLITS else []
    return len({part.shape for part in parts}) > 1


def _is_on_gpu(node: fx.Node) -> bool:
    return device_of(operand.meta.get("val") for operand in node.all_input_nodes).type == "cuda"


def _is_of(node: fx.Node, many: int, *, unknown: bool = False) -> bool:
    """Whether the first operand has so many elements, or more; ``unknown`` where that shows in a run alone."""
    numel = elements(node.all_input_nodes[0].meta["val"])
    return unknown if numel is None else numel >= many
