"""A compiled model whose graphs run on torch's kernels, and what of its values may belong to which call of a module."""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves, tree_map_only

from dort_compare.align.traced_calls import (
    TracedCall,
    incoming_gradients,
    modules_of,
    passed_on,
    regenerated,
    traced_calls,
)
from dort_compare.backends.recorded_runs import TracedGraph
from dort_compare.trace.module_calls import Identity, Kind, ModuleCall, ModuleCalls, leaves, on_gradient
from dort_compare.trace.watched import See

RunGraph = Callable[[fx.GraphModule, list[Any], See], Any]


def _no_view(result: torch.Tensor) -> torch.Tensor:
    """The same memory as no view to autograd, as ONNX Runtime's results are none: later code may write into it."""
    if not result._is_view() or result.layout != torch.strided:
        return result
    result = result.resolve_conj().resolve_neg()
    place = (result.storage_offset(), result.shape, result.stride())
    return result.new_empty(0).set_(result.untyped_storage(), *place)


@dataclass(frozen=True, eq=False)
class GraphCall:
    """One run of a forward graph, and the run of its backward graph.

    dynamo may take the code of one module for another of its class: the graph was traced where Python was in module
    ``root``, and runs where it is in ``active``; the modules at the same places below are meant.
    """

    calls: ModuleCalls
    root: str
    active: str

    def module(self, identity: Identity) -> str | None:
        """The path of the module that stands for the one that was meant when the graph was traced."""
        name = self.calls.name(identity)
        is_below = name is not None and (not self.root or f"{name}.".startswith(f"{self.root}."))
        if name is None or self.root == self.active or not is_below:
            return name
        return f"{self.active}.{name[len(self.root) :].strip('.')}".strip(".")

    def module_of(self, node: fx.Node) -> str:
        """The path of the innermost module of the model that a node stems from."""
        found = (self.module(identity) for identity in reversed(modules_of(node)))
        return next((name for name in found if name is not None), self.active)


class Made(NamedTuple):
    """The FX node, in a run, that made a result of a graph."""

    node: fx.Node
    run: GraphCall


@dataclass(frozen=True, eq=False)
class Sighting:
    """A tensor that may be what ``call`` took, what it returned, or the gradient of that.

    ``leaf`` is known where Python made the call. Elsewhere ``node``, in ``run``, is the FX node of the tensor, and for
    a gradient ``exit`` the one of the result that it belongs to. One that is not ``firm`` has to prove equal. ``maker``
    is the FX node, and the run, whose result Python handed on as it is.
    """

    kind: Kind
    call: ModuleCall
    value: torch.Tensor
    leaf: str | None = None
    run: GraphCall | None = None
    node: fx.Node | None = None
    exit: fx.Node | None = None
    firm: bool = True
    maker: Made | None = None


_Begun = tuple[TracedCall, ModuleCall]
_Sighted = dict[fx.Node, list[Callable[[torch.Tensor], Sighting]]]
_Memory = tuple[StorageWeakRef, Any, torch.Size, tuple[int, ...], int]
"""Storage, offset, sizes, strides and how often it was written."""


class Lookout:
    """Runs the graphs of a compiled model by ``run_graph`` and shows to ``see`` what modules may have returned.

    ``calls`` counts the calls of modules, those that Python makes and those that were traced. ``runs`` are those of
    each graph, of a backward graph those of its forward graph that it differentiates.
    """

    def __init__(self, model: nn.Module, run_graph: RunGraph, see: Callable[[Sighting], None]) -> None:
        self.calls = ModuleCalls(model)
        self.runs: dict[TracedGraph, list[GraphCall]] = defaultdict(list)
        self._run_graph = run_graph
        self._see = see
        self._roots: dict[TracedGraph, str] = {}
        self._traced: dict[TracedGraph, list[TracedCall]] = {}
        self._incoming: dict[TracedGraph, Mapping[int, list[fx.Node]]] = {}
        self._in_part: dict[TracedGraph, set[fx.Node]] = {}
        self._returned: list[tuple[_Memory, Made]] = []
        self._open: dict[str | None, list[tuple[GraphCall, TracedGraph, list[_Begun]]]] = defaultdict(list)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within it the compiled model is to be called, its graphs run by ``execute``."""
        with warnings.catch_warnings(), self.calls.watched(self._left):
            warnings.filterwarnings("ignore", "Using `torch.compile", UserWarning)
            yield

    def execute(self, graph: TracedGraph, arguments: list[Any]) -> Any:
        """Runs one graph; it is for a DebugBackend's ``executing``."""
        run = None if graph.phase == "backward" else self._run_of(graph)
        sighted = self._gradients(graph) if run is None else self._outputs(graph, run)

        def see(node: fx.Node, value: torch.Tensor) -> None:
            for sighting in sighted.pop(node, ()):
                self._see(sighting(value))

        results = tree_map_only(torch.Tensor, _no_view, self._run_graph(graph.graph_module, arguments, see))
        if run is not None:
            self._returned = [*_returned(graph.graph_module.graph, run, results)]
        return results

    def _run_of(self, graph: TracedGraph) -> GraphCall:
        active = self.calls.active[-1].module if self.calls.active else ""
        run = GraphCall(self.calls, self._roots.setdefault(graph, active), active)
        self.runs[graph].append(run)
        return run

    def _outputs(self, graph: TracedGraph, run: GraphCall) -> _Sighted:
        if graph not in self._traced:
            self._traced[graph] = traced_calls(graph.graph_module.graph)
        begun = []
        sighted: _Sighted = defaultdict(list)
        for traced in self._traced[graph]:
            name = run.module(traced.module)
            if name is None or (self.calls.active and name == run.active and traced.depth == 0):
                continue  # not of the model, or the call that Python is in: none where dynamo has traced the model's
            call = self.calls.begin(name)
            begun.append((traced, call))
            for node in traced.entries:
                sighted[node].append(functools.partial(Sighting, "input", call, run=run, node=node, firm=False))
            for node in traced.exits:
                sighted[node].append(functools.partial(Sighting, "output", call, run=run, node=node))
        if graph.phase == "forward":
            self._open[graph.compile_id].append((run, graph, begun))
        return sighted

    def _gradients(self, graph: TracedGraph) -> _Sighted:
        """Of several runs of a forward graph the last is differentiated first."""
        if graph not in self._incoming:
            self._incoming[graph] = incoming_gradients(graph.graph_module.graph)
        sighted: _Sighted = defaultdict(list)
        if not self._open[graph.compile_id]:
            return sighted
        run, forward, begun = self._open[graph.compile_id].pop()
        self.runs[graph].append(run)
        if graph not in self._in_part:
            self._in_part[graph] = regenerated(forward.graph_module.graph, graph.graph_module.graph)
        for traced, call in begun:
            for result, number in traced.exits.items():
                found = self._incoming[graph].get(number, ())
                is_firm = bool(found) and result not in self._in_part[graph]
                gradient = functools.partial(Sighting, "gradient", call, run=run, exit=result, firm=is_firm)
                for node in found or passed_on(result, self._incoming[graph]):
                    sighted[node].append(functools.partial(gradient, node=node))
        return sighted

    def _left(self, call: ModuleCall, result: Any) -> None:
        for leaf, tensor in leaves(result).items():
            self._see(Sighting("output", call, tensor.detach(), leaf, maker=self._maker(tensor)))
            on_gradient(tensor, functools.partial(self._see_gradient, call, leaf))

    def _maker(self, tensor: torch.Tensor) -> Made | None:
        """What made a tensor that the last run of a graph returned, of one that nothing was done to since."""
        own = _memory(tensor)
        return next((made for memory, made in self._returned if not memory[0].expired() and memory == own), None)

    def _see_gradient(self, call: ModuleCall, leaf: str, gradient: torch.Tensor) -> None:
        """Not the whole gradient where the graph that returns the tensor reads it too."""
        self._see(Sighting("gradient", call, gradient, leaf, firm=False))


def _memory(tensor: torch.Tensor) -> _Memory | None:
    if tensor.layout != torch.strided or not torch._C._has_storage(tensor) or tensor.is_inference():
        return None
    place = tensor.storage_offset(), tensor.shape, tensor.stride()
    return StorageWeakRef(tensor.untyped_storage()), *place, tensor._version


def _returned(graph: fx.Graph, run: GraphCall, results: Any) -> Iterator[tuple[_Memory, Made]]:
    nodes = tree_leaves(graph.output_node().args[0])
    for node, result in zip(nodes, tree_leaves(results), strict=True):
        memory = _memory(result) if isinstance(result, torch.Tensor) else None
        if isinstance(node, fx.Node) and memory is not None:
            yield memory, Made(node, run)
