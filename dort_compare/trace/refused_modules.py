"""Modules and calls that are not compared, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dort_compare.errors import UsageError
from dort_compare.trace.wrapped import is_wrapper

_REFUSALS = {
    "use_reentrant=True": "checkpoint(..., use_reentrant=True) is not compared; give use_reentrant=False",
    "Inference tensors cannot be saved": "what was made in torch.inference_mode() cannot be differentiated; give "
    "a clone of it, made outside",
    "not currently support double backward": "torch.compile cannot differentiate a gradient that the model takes by "
    "torch.autograd.grad(..., create_graph=True); take it by torch.func.grad",
    "view was created inside a custom Function": "torch.compile cannot differentiate a model that writes in place what "
    "a compiled graph returned a view of; let it write a clone",
    "Can't detach views in-place": "the model writes what requires gradients into an argument or buffer that is a view "
    "of another tensor; give a clone of it",
    "element 0 of tensors does not require grad": "the model takes the gradient of what requires none; without "
    "backward=True compare runs it under torch.no_grad(), so let it take gradients within torch.enable_grad()",
}
"""What to do about what torch says of a call or its backward pass."""


@contextmanager
def refusals_explained() -> Iterator[None]:
    """Says in one line what to do about what torch refuses."""
    try:
        yield
    except RuntimeError as problem:
        mend = next((mend for said, mend in _REFUSALS.items() if said in str(problem)), None)
        if mend is None:
            raise
        raise UsageError(mend) from None


def refuse_foreign(tensors: Iterable[torch.Tensor], what: str) -> None:
    """Raises UsageError for a tensor that is made of others, or holds no values."""
    for tensor in tensors:
        if is_lazy(tensor):
            raise UsageError(f"{what} is not initialized; call the model once before, as lazy modules ask for")
        if tensor.is_meta:
            raise UsageError(f"{what} is on the device meta, which holds no values; give it some elsewhere")
        if tensor.is_nested or _has_no_memory(tensor):
            kind = type(tensor).__qualname__
            name = "nested tensor" if tensor.is_nested else f"{kind}, a tensor subclass without memory"
            raise UsageError(f"{what} is a {name}, which is not compared; have the model take and return plain tensors")


def refuse_gradients_by_wrappers(function: Callable[..., Any]) -> None:
    """Raises UsageError for a parameter that asks for its gradient and is made of other tensors."""
    for name, parameter in function.named_parameters() if isinstance(function, nn.Module) else ():
        if parameter.requires_grad and is_wrapper(parameter):
            raise UsageError(
                f"the gradient by {name}, a {type(parameter).__qualname__}, which is made of other tensors, is not "
                "compared; freeze it with requires_grad_(False), or compare without backward"
            )


def _has_no_memory(tensor: torch.Tensor) -> bool:
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and not tensor.data_ptr()
