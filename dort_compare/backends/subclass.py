"""Tensor subclasses that AOTAutograd cannot take apart: their graphs run in eager torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from dort_compare.backends.fallback import Fallback, warn
from dort_compare.backends.options import Options
from dort_compare.errors import UnsupportedGraphError

_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


def foreign_subclass(arguments: Sequence[Any]) -> type | None:
    """The first class among the tensors of a graph that is neither plain nor made of tensors that it names."""
    tensors = (argument for argument in arguments if isinstance(argument, torch.Tensor))
    return next((type(t) for t in tensors if type(t) not in _PLAIN and not is_traceable_wrapper_subclass(t)), None)


def fall_back(options: Options, graph_module: fx.GraphModule, kind: type) -> list[Fallback]:
    """Tells that the whole of a dynamo graph runs in eager torch.

    Raises UnsupportedGraphError where ``options.fallback`` is off.
    """
    reason = f"an argument is a {kind.__qualname__}, a tensor subclass without __tensor_flatten__"
    if not options.fallback:
        raise UnsupportedGraphError(f"{reason}; give a plain one, x.as_subclass(torch.Tensor)", reason)
    calls = [node for node in graph_module.graph.nodes if node.op.startswith("call_")]
    fallbacks = [Fallback.of(node, "inference", reason) for node in calls]
    if fallbacks:
        warn(fallbacks, graph_module)
    return fallbacks
