"""CUDA graphs: the kernels of a graph are recorded once, and launched again by one call.

Torch's CUDA graph trees record and launch, as they do for inductor (``torch._inductor.cudagraph_trees``): they copy
inputs to where the kernels read them, see to it that no result is overwritten that is still read, and have forward and
backward graphs share memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import onnx_ir as ir
import torch
from torch import fx
from torch._inductor.cudagraph_trees import cudagraphify_impl, get_manager
from torch._inductor.cudagraph_utils import get_placeholder_info
from torch._inductor.utils import count_tangents, get_first_incompatible_cudagraph_node
from torch.fx.experimental.symbolic_shapes import free_symbols

from dort_compare import provenance
from dort_compare.backends.aot import still_places
from dort_compare.backends.captured import in_torchs_storages, refusal
from dort_compare.descriptors import is_token
from dort_compare.provenance import Phase
from dort_compare.randomness import RANDOM_OPERATORS
from dort_compare.runtime.binding import device_of
from dort_compare.runtime.boxed import Boxed, as_boxed

_LOGGER = logging.getLogger("dort_compare")
_SYMBOLIC = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
_DRAWING = RANDOM_OPERATORS | {"Dropout"}


class Recorder:
    """Records the graphs of one compiled function. The backward graph is recorded where the forward graph is: only then
    does what that has saved lie in the same place in every step."""

    def __init__(self) -> None:
        self._is_forward_recorded: bool | None = None  # that is not known before it has been tried

    def recorded(self, boxed: Boxed, graph_module: fx.GraphModule, phase: Phase, models: Iterable[ir.Model]) -> Boxed:
        """The boxed callable of a graph of which ONNX Runtime runs ``models``; from the third call on it is recorded.

        The first call makes what kernels make once, and the second is tried. A graph that cannot be recorded runs as it
        is, with a warning that says why.
        """
        is_backward = phase == "backward"
        if is_backward and self._is_forward_recorded is False:
            return boxed
        plain = self._announced(boxed) if is_backward else boxed
        if reason := _obstacle(graph_module, models):
            self._refuse(phase, reason)
            return plain
        device = device_of(node.meta.get("val") for node in graph_module.graph.nodes)
        launch = _launcher(boxed, graph_module, phase, device)
        run, is_warm, is_tried = plain, False, False

        @as_boxed
        def call(arguments: list[Any]) -> Any:
            nonlocal run, is_warm, is_tried
            if is_warm and not is_tried and (self._is_forward_recorded or not is_backward):
                is_tried = True
                if reason := refusal(boxed, list(arguments), device):
                    self._refuse(phase, reason)
                else:
                    self._is_forward_recorded, run = True, launch
            is_warm = True
            return run(arguments)

        return call

    def _refuse(self, phase: Phase, reason: str) -> None:
        _LOGGER.warning("%s graph: no CUDA graph is made of it: %s", phase, reason)
        if phase == "forward":
            self._is_forward_recorded = False

    def _announced(self, boxed: Boxed) -> Boxed:
        """A backward graph as it is. Torch is told that its time has come where the forward graph is recorded."""

        @as_boxed
        def call(arguments: list[Any]) -> Any:
            device = device_of(arguments)
            manager = self._is_forward_recorded and get_manager(device.index, create_if_none_exists=False)
            if manager:
                manager.set_to_running_backward()
            return boxed(arguments)

        return call


def _launcher(boxed: Boxed, graph_module: fx.GraphModule, phase: Phase, device: torch.device) -> Boxed:
    """The callable that records at its second call, and launches from then on; at its first it runs in the memory that
    it is to have."""
    # of a backward graph, all but the gradients that arrive has been saved by the forward graph
    unmoved = range(count_tangents(graph_module)) if phase == "backward" else still_places()
    (output,) = graph_module.graph.find_nodes(op="output")
    return cudagraphify_impl(
        lambda arguments: in_torchs_storages(boxed, arguments),
        [node.meta["val"] for node in graph_module.graph.find_nodes(op="placeholder")],
        list(unmoved),
        device_index=device.index,
        is_backward=phase == "backward",
        is_inference=phase == "inference",
        stack_traces=[each.stack_trace if isinstance(each, fx.Node) else None for each in output.args[0]],
        placeholders=tuple(get_placeholder_info(graph_module.graph)),
    )


def _valued(graph_module: fx.GraphModule, *kinds: type) -> list[tuple[fx.Node, Any]]:
    """The nodes that stand for values of these types, with what torch traced."""
    values = ((node, node.meta.get("val")) for node in graph_module.graph.nodes)
    return [(node, value) for node, value in values if isinstance(value, kinds)]


def _obstacle(graph_module: fx.GraphModule, models: Iterable[ir.Model]) -> str | None:
    """What keeps a graph from being recorded, as far as it shows before the graph has run."""
    return next(_obstacles(graph_module, models), None)


def _obstacles(graph_module: fx.GraphModule, models: Iterable[ir.Model]) -> Iterator[str]:
    tensors = _valued(graph_module, torch.Tensor)
    if any(map(is_token, graph_module.graph.nodes)):
        yield "it checks values, or has other effects, in every call"
    if not tensors:
        yield "it has no tensors"
    if elsewhere := [node.name for node, value in tensors if value.device.type != "cuda"]:
        yield f"{elsewhere[0]} is not on a GPU"
    if len({value.device for _, value in tensors}) > 1:
        yield "it runs on several GPUs"
    if any(free_symbols(value) for _, value in _valued(graph_module, *_SYMBOLIC)):
        yield "its sizes or numbers vary; torch.compile(..., dynamic=False) makes a graph for each"
    if unsafe := get_first_incompatible_cudagraph_node(graph_module):
        yield f"torch records no {provenance.described(unsafe)}"
    if drawing := {node.op_type for model in models for node in model.graph.all_nodes()} & _DRAWING:
        yield f"ONNX Runtime's {min(drawing)} would draw the same numbers again"
