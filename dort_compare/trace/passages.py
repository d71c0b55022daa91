"""What only shows another value, in whatever shape: told of ONNX values by their nodes, of torch's by their memory."""

from __future__ import annotations

import onnx
import torch

_PASSAGES = frozenset(["Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"])


def shown_by(node: onnx.NodeProto) -> str | None:
    """The value whose elements, in their order, are those that ``node`` gives; None where it computes or moves some."""
    is_passage = node.domain in ("", "ai.onnx") and node.op_type in _PASSAGES
    return str(node.input[0]) if is_passage else None


def are_same_elements(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same memory read in the same order, in whatever shapes."""
    kinds = [(t.dtype, t.device, t.numel(), t.data_ptr(), t.is_neg(), t.is_conj()) for t in (one, other)]
    return kinds[0] == kinds[1] and one.is_contiguous() and other.is_contiguous()
