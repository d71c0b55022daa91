"""Tensors that are made of others, as quantized weights are of integers and scales."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TraceableWrapperSubclass  # torch 2.11 has none


def plain_tensors(named: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """``named`` tensors, but those that one is made of in its place: ``weight.qdata`` and ``weight.scale``, say.

    Graphs take these, as AOTAutograd cuts them.
    """
    for name, tensor in named:
        if is_wrapper(tensor):
            inner, _ = tensor.__tensor_flatten__()
            yield from plain_tensors((f"{name}.{each}", getattr(tensor, each)) for each in inner)
        else:
            yield name, tensor


def is_wrapper(tensor: torch.Tensor) -> TypeGuard[TraceableWrapperSubclass]:
    """Whether a tensor is made of others alone, which it names: a DTensor holds a mesh, too. A nested one is none
    here."""
    if tensor.is_nested or not is_traceable_wrapper_subclass(tensor):
        return False
    inner, _ = tensor.__tensor_flatten__()
    return all(isinstance(getattr(tensor, each), torch.Tensor) for each in inner)
