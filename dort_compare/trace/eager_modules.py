"""What the modules of the plain model return, and the gradients of that: one run, with hooks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from dort_compare.trace.module_calls import ModuleCall, ModuleCalls, Place, leaves, on_gradient
from dort_compare.writes import Taken


@contextmanager
def module_values(model: nn.Module, see: Callable[[Place, torch.Tensor], None]) -> Iterator[ModuleCalls]:
    """Within it ``see`` gets what the modules of ``model`` take and return and the gradients by what they return, as
    they come.

    Nothing is copied: it is the tensor itself, detached, and later writes in place show in it.
    """

    def entered(call: ModuleCall, args: Any) -> None:
        for leaf, tensor in leaves(args).items():
            see(Place("input", call, leaf), tensor.detach())

    def left(call: ModuleCall, result: Any) -> None:
        for leaf, tensor in leaves(result).items():
            see(Place("output", call, leaf), tensor.detach())
            on_gradient(tensor, functools.partial(see, Place("gradient", call, leaf)))

    calls = ModuleCalls(model)
    with calls.watched(left, entered):
        yield calls


class EagerValue(Taken[torch.Tensor]):
    """What a module has, for as long as it is not written; a copy of a tensor of inference mode, of which torch does
    not count the writes."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.clone() if tensor.is_inference() else tensor)

    @property
    def content(self) -> object:
        """What tensors of the same content in the same memory have in common, for as long as one of them is kept."""
        return self.value.data_ptr(), self.value.shape, self.value.stride(), self.value.dtype, self.version

    @property
    def tensor(self) -> torch.Tensor | None:
        return self.value if self.is_unwritten else None
