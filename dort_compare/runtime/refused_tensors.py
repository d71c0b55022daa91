"""Tensors that hold more, or less, than the memory that ONNX Runtime is given."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from dort_compare.errors import ExecutionError


def refuse_tangents(tensors: Sequence[torch.Tensor]) -> None:
    """Raises ExecutionError where a tensor carries a derivative in forward mode, which would be lost without a word."""
    if forward_ad._current_level < 0:
        return
    if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise ExecutionError(
            "derivatives in forward mode (torch.autograd.forward_ad, strategy='forward-mode') do not pass through ONNX "
            "Runtime; take torch.func.jvp or jacfwd of the compiled model, or the model that is not compiled"
        )


def without_memory(tensors: Sequence[torch.Tensor]) -> ExecutionError | None:
    """What is wrong where a tensor has no memory of its own, told after ONNX Runtime or torch has failed; else None."""
    if not all(map(torch._C._has_storage, tensors)):
        return ExecutionError(
            "a tensor without memory of its own, as is_grads_batched=True and vectorize=True make them, cannot go to "
            "ONNX Runtime; take one gradient at a time, or torch.func.jacrev of the compiled model"
        )
    if any(isinstance(tensor, FakeTensor) for tensor in tensors):
        return ExecutionError(
            "a fake tensor has no elements to compute with; give it to the model that is not compiled"
        )
    if any(tensor.numel() and not tensor.untyped_storage().size() for tensor in tensors):
        return ExecutionError("the memory of a tensor has been freed (its storage has size 0); give it back before")
    return None
