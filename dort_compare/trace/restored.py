"""Tensors that a call may write, and their gradients, as they were before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch


@contextmanager
def restored(written: Iterable[torch.Tensor]) -> Iterator[Mapping[int, torch.Tensor]]:
    """Within it tensors that have memory may be written in place, and their ``data`` set; after it they have their
    memory and its content back.

    Gives copies of that by ``id`` of the tensor.
    """
    distinct = {id(tensor): tensor for tensor in written}.values()
    tensors = [each for each in distinct if torch._C._has_storage(each) and not (each.is_meta or each.is_inference())]
    before = [(tensor, tensor.detach(), tensor.detach().clone()) for tensor in tensors]
    leaves = [tensor for tensor in tensors if tensor.is_leaf]
    try:
        yield {id(tensor): content for tensor, _, content in before}
    finally:
        for tensor in leaves:
            if not tensor.is_leaf:  # what was written into it required gradients
                tensor.detach_()
        for tensor, memory, content in before:
            if not tensor.is_set_to(memory):
                tensor.data = memory
            if not is_unchanged(memory, content):  # batch norm writes without counting up the version
                memory.copy_(content)


def is_unchanged(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether every element is what it was before, NaN too."""
    if torch.equal(tensor, before):
        return True
    is_alike = tensor.shape == before.shape and tensor.dtype == before.dtype
    return is_alike and bool(((tensor == before) | (tensor.isnan() & before.isnan())).all())


@contextmanager
def gradients_kept(sources: Iterable[torch.Tensor]) -> Iterator[None]:
    """Within it ``.grad`` may be added to or set; after it each is the one that it was, of the same content."""
    before = [(source, source.grad) for source in gradient_leaves(sources)]
    for source, gradient in before:
        source.grad = None if gradient is None else gradient.clone()
    try:
        yield
    finally:
        for source, gradient in before:
            source.grad = gradient


def gradient_leaves(sources: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors, each once, that gather gradients in ``.grad``, and may be given the one that they have again."""
    leaves = [source for source in {id(source): source for source in sources}.values() if source.is_leaf]
    return [
        leaf
        for leaf in leaves
        if leaf.grad is None
        or (leaf.shape, leaf.dtype, leaf.device) == (leaf.grad.shape, leaf.grad.dtype, leaf.grad.device)
    ]
