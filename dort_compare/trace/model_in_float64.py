"""The whole model in float64, uncompiled."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from dort_compare.errors import one_line
from dort_compare.problems import level_of, out_of_memory
from dort_compare.trace.attributes import attribute_tensors, attributes_kept
from dort_compare.trace.call import Call
from dort_compare.trace.modules import run_module
from dort_compare.trace.outcome import Outcome
from dort_compare.trace.restored import restored
from dort_compare.trace.wrapped import is_wrapper

_LOG = logging.getLogger("dort_compare.trace")


def run_in_float64(model: nn.Module, call: Call) -> Outcome:
    """The outcome with parameters, buffers and arguments in float64 and no autocast; an empty one where it does not run
    so, because it casts to a narrower dtype on the way, say, or a check of it holds by rounding alone, and where a
    parameter or buffer is made of other tensors, which decide what is computed in."""
    if any(map(is_wrapper, (*model.parameters(), *model.buffers()))):
        return Outcome({})
    try:
        return _run_doubled(model, call)
    except Exception as problem:  # noqa: BLE001  (whatever the model raises that did run in its own dtypes)
        told = "nothing of the whole model is held against float64: %s"
        _LOG.log(level_of(problem), told, out_of_memory(problem) or one_line(problem))
        return Outcome({})


def _run_doubled(model: nn.Module, call: Call) -> Outcome:
    state = _doubled_state(model)
    args, kwargs = tree_map(_double, (tuple(call.args), dict(call.kwargs)))
    parameters = {name: state[name] for name, _ in model.named_parameters()}
    names = [name for name, _ in model.named_buffers()]

    def function(*args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(model, state, args, kwargs, tie_weights=False)  # updates state

    def buffers() -> list[tuple[str, torch.Tensor]]:
        return [(name, state[name]) for name in names]

    with attributes_kept(model), restored(attribute_tensors(model)):
        return run_module(function, parameters, Call(args, kwargs, call.backward, call.loss), buffers)


def _doubled_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers under every name that each module has them by, what is shared doubled once.

    A module that stands in several places is there once: ``functional_call``, which would tie them by itself, swaps its
    tensors twice and leaves the doubled ones in the model.
    """
    doubled: dict[int, torch.Tensor] = {}
    state = {}
    for prefix, module in model.named_modules():
        parameters = module.named_parameters(recurse=False, remove_duplicate=False)
        for name, tensor in (*parameters, *module.named_buffers(recurse=False, remove_duplicate=False)):
            double = doubled.setdefault(id(tensor), _own(tensor))
            state[f"{prefix}.{name}" if prefix else name] = double
    return state


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """A copy, raised, that the run may write in place."""
    return tensor.detach().to(_raised(tensor.dtype), copy=True).requires_grad_(tensor.requires_grad)


def _double(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or _raised(value.dtype) == value.dtype:
        return value
    return value.detach().to(_raised(value.dtype)).requires_grad_(value.requires_grad)


def _raised(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype
