"""Graphs that AOTAutograd cannot take, or not from a backend without writes to inputs: they run in eager torch."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.torch_version import TorchVersion
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from dort_compare.backends.fallback import Fallback, warn
from dort_compare.backends.options import Options
from dort_compare.errors import UnsupportedGraphError
from dort_compare.fx_graph import graphs_within
from dort_compare.provenance import Phase

_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)
_GIVEN_MEMORY = {torch.Tensor.set_, getattr(torch.ops.aten, "shallow_copy_data_", None)}
"""What becomes of ``x.data = ...`` in a dynamo graph, up to torch 2.13 and from 2.14 on."""

_OURS, _SEAM = f"{Path(__file__).parents[1]}{os.sep}", str(Path(__file__).with_name("aot.py"))
"""Where our files lie, and which of them calls AOTAutograd."""


class Obstacle(NamedTuple):
    """Why a graph cannot be traced, and what its author can do."""

    reason: str
    mend: str


def obstacle(graph_module: fx.GraphModule, arguments: Sequence[Any]) -> Obstacle | None:
    """What keeps AOTAutograd from a dynamo graph, if anything does.

    That is a tensor subclass that is not made of tensors which it names, or an input that is given other memory.
    """
    tensors = (argument for argument in arguments if isinstance(argument, torch.Tensor))
    kind = next((type(t) for t in tensors if not _is_plain(type(t)) and not is_traceable_wrapper_subclass(t)), None)
    if kind:
        reason = f"an argument is a {kind.__qualname__}, a tensor subclass without __tensor_flatten__"
        return Obstacle(reason, "give a plain one, x.as_subclass(torch.Tensor)")
    if _setters(graph_module):
        return Obstacle("an input is given other memory, x.data = ...", "write into it, x.copy_(...) under no_grad")
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


def is_torchs_own(problem: BaseException) -> bool:
    """Whether AOTAutograd has raised an exception, and nothing of ours that it called."""
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame.filename for frame in frames if frame.filename.startswith(_OURS)]
    return ours[-1:] == [_SEAM] and ours.count(_SEAM) == 1


def fall_back(
    options: Options, graph_module: fx.GraphModule, arguments: Sequence[Any], obstacle: Obstacle
) -> list[Fallback]:
    """Tells that the whole of a dynamo graph runs in eager torch, and has it do what its author wrote.

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
    _set_plainly(graph_module)
    return fallbacks


def _setters(graph_module: fx.GraphModule) -> list[tuple[fx.GraphModule, fx.Node]]:
    """The nodes that give a tensor other memory, in a dynamo graph and in those within it."""
    graphs = graphs_within(graph_module)
    return [(each, node) for each in graphs for node in each.graph.nodes if node.target in _GIVEN_MEMORY]


def _set_plainly(graph_module: fx.GraphModule) -> None:
    """Sets data as the model does. Torch's ``set_`` hides from ``torch.autograd.grad`` what has read the input before,
    and counts as a write to it, which another node is there to undo."""
    setters = _setters(graph_module)
    for _, setter in setters:
        for reader in list(setter.users):
            if getattr(reader.target, "__name__", "") == "_lower_version_count_by_1":
                setter.graph.erase_node(reader)
        setter.target = _set_data
    for holder in {holder for holder, _ in setters}:
        holder.recompile()


def _set_data(given: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    given.data = data
    return given
