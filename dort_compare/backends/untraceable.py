"""Graphs that AOTAutograd cannot take: they run in eager torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.torch_version import TorchVersion
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from dort_compare.backends.fallback import Fallback, warn
from dort_compare.backends.given_data import set_plainly, setters
from dort_compare.backends.options import Options
from dort_compare.errors import UnsupportedGraphError
from dort_compare.provenance import Phase

_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


class Obstacle(NamedTuple):
    """Why a graph cannot be traced, and what its author can do."""

    reason: str
    mend: str


def obstacle(graph_module: fx.GraphModule, arguments: Sequence[Any], *, cudagraphs: bool) -> Obstacle | None:
    """What keeps AOTAutograd from a dynamo graph, if anything does.

    That is a tensor subclass that is not made of tensors which it names, or ``x.data = ...`` of an input where what
    eager makes of it takes eager, or where ``cudagraphs`` would write over the data.
    """
    return _subclass(arguments) or _data(graph_module.graph, arguments, cudagraphs)


def _subclass(arguments: Sequence[Any]) -> Obstacle | None:
    tensors = (argument for argument in arguments if isinstance(argument, torch.Tensor))
    kind = next((type(t) for t in tensors if not _is_plain(type(t)) and not is_traceable_wrapper_subclass(t)), None)
    if not kind:
        return None
    reason = f"an argument is a {kind.__qualname__}, a tensor subclass without __tensor_flatten__"
    return Obstacle(reason, "give a plain one, x.as_subclass(torch.Tensor)")


def _data(graph: fx.Graph, arguments: Sequence[Any], cudagraphs: bool) -> Obstacle | None:
    inputs = list(graph.find_nodes(op="placeholder"))
    for setter in setters(graph):
        if setter.is_unlike(arguments[inputs.index(setter.given)]):
            reason = "x.data = ... gives an input that learns another shape, dtype or device"
            return Obstacle(reason, "give it data like its own")
        if setter.is_late:
            reason = "x.data = ... of an input comes after something with gradients has read it"
            return Obstacle(reason, "let it come before that, or outside of the model")
        if cudagraphs:
            reason = "x.data = ... gives an input memory that cudagraphs writes again"
            return Obstacle(reason, "write x.copy_(...) under no_grad")
    return None


def _is_plain(kind: type[torch.Tensor]) -> bool:
    """Whether AOTAutograd takes tensors of a class for plain ones: up to torch 2.12 parameters of no other class than
    torch's own, later those too of a class that changes nothing of how they compute."""
    if kind in _PLAIN:
        return True
    if TorchVersion(torch.__version__) < "2.13" or not issubclass(kind, torch.nn.Parameter):
        return False
    as_parameter = torch.nn.Parameter.__torch_function__, torch.nn.Parameter.__torch_dispatch__
    return (kind.__torch_function__, kind.__torch_dispatch__) == as_parameter


def fall_back(
    options: Options, graph_module: fx.GraphModule, arguments: Sequence[Any], obstacle: Obstacle
) -> list[Fallback]:
    """Tells that the whole of a dynamo graph runs in eager torch, and lets it.

    Raises UnsupportedGraphError where ``options.fallback`` is off.
    """
    if not options.fallback:
        raise UnsupportedGraphError(f"{obstacle.reason}; {obstacle.mend}", obstacle.reason)
    learns = any(isinstance(each, torch.Tensor) and each.requires_grad for each in arguments)
    phase: Phase = "forward" if learns and torch.is_grad_enabled() else "inference"
    calls = [node for node in graph_module.graph.nodes if node.op.startswith("call_")]
    fallbacks = [Fallback.of(node, phase, obstacle.reason) for node in calls]
    if fallbacks:
        warn(fallbacks, graph_module)
    set_plainly(graph_module)
    return fallbacks
