"""The backend that remembers: every graph with its ONNX model and the inputs of its runs, dumped where asked for."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import fx

from dort_compare import provenance
from dort_compare.backends import partition
from dort_compare.backends.aot import aot_backend, compile_id
from dort_compare.backends.fallback import Fallback
from dort_compare.backends.graph_breaks import graph_break
from dort_compare.backends.options import Options, keywords, refuse_mode
from dort_compare.backends.partition import KeptPiece
from dort_compare.backends.recorded_runs import CompiledGraph, GraphId, Results, TracedGraph
from dort_compare.dump import DumpWriter
from dort_compare.errors import UsageError
from dort_compare.lowering.lowered import Lowered
from dort_compare.provenance import Phase
from dort_compare.runtime import Program
from dort_compare.runtime.boxed import Boxed, as_boxed
from dort_compare.runtime.program import Argument

Storage = dict[str, Any]
Execute = Callable[[TracedGraph, list[Any]], Any]
"""Runs a graph on its arguments, a list that it empties, and returns its outputs."""
_RUNS = itertools.count()
_RECORDING = threading.RLock()
"""Several threads may compile and run, and several backends share one storage."""


class DebugBackend:
    """A torch.compile backend that records what it compiles and runs.

    ``graphs`` lists the compiled graphs in the order in which they were compiled, ``fallbacks`` the FX nodes that run
    in eager torch; a graph in which some do is a compiled graph for each of its pieces. ``graph_breaks`` says, for each
    graph that dynamo ended before the end of a function, why and where. Several threads may compile and run at once.
    With ``storage`` given, ``graphs`` and ``fallbacks`` are ``storage["graphs"]`` and ``storage["fallbacks"]``. The
    keyword arguments are the fields of Options.

    Raises UsageError for an unknown or impossible option.
    """

    def __init__(self, *, storage: Storage | None = None, **options: Any) -> None:
        self.options = Options.of(**options)
        storage = {} if storage is None else storage
        if not isinstance(storage, dict):
            raise UsageError(f"storage is {storage!r}; give a dict")
        self.graphs: list[CompiledGraph] = storage.setdefault("graphs", [])
        self.fallbacks: list[Fallback] = storage.setdefault("fallbacks", [])
        self.graph_breaks: list[str] = []
        self._dump = DumpWriter.in_folder(self.options.dump, self.options.dump_prefix) if self.options.dump else None
        self._dumped: dict[int, str] = {}
        rewrites = bool(self.options.rewrites)
        self._compile = aot_backend(self.compile_graph, self.options, self.fallbacks, rewrites=rewrites)
        self._execute: Execute | None = None
        self._kept: dict[int, Results] | None = None

    def __call__(
        self,
        graph_module: fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        options: Mapping[str, Any] | None = None,
        mode: str | None = None,
    ) -> Callable[..., Any]:
        refuse_mode(mode)
        if options:
            raise UsageError("a DebugBackend has its options already: give them to DebugBackend(...)")
        self.graph_breaks.extend(filter(None, [graph_break(graph_module)]))
        return self._compile(graph_module, example_inputs)

    def __deepcopy__(self, _: object) -> DebugBackend:
        """A copy of a compiled model has the backend of the model, not one of its own."""
        return self

    def compile_graph(self, graph_module: fx.GraphModule, example_inputs: Sequence[Any], *, phase: Phase) -> Boxed:
        """Compiles one AOTAutograd graph of the given phase; the result takes its arguments as one list (boxed)."""
        traced = TracedGraph(phase, compile_id(), graph_module)

        def keep(piece: fx.GraphModule, lowered: Lowered, program: Program) -> KeptPiece:
            with _RECORDING:
                identity = GraphId(len(self.graphs), phase, compile_id())
                boxed = self._keep(CompiledGraph(identity, piece, lowered, program, self.options.max_runs, traced))
                return KeptPiece(boxed, self._dumped.get(identity.index))

        boxed, fallbacks = partition.compile_graph(self.options, graph_module, example_inputs, phase, keep)
        self.fallbacks.extend(fallbacks)
        if self._dump and fallbacks:
            self._dump.add_fallbacks([fallback.to_json() for fallback in fallbacks])
        return self._replaceable(traced, boxed)

    @contextmanager
    def executing(self, execute: Execute) -> Iterator[None]:
        """Within it ``execute`` runs every graph that this backend has compiled, whole, and nothing is recorded."""
        before, self._execute = self._execute, execute
        try:
            yield
        finally:
            self._execute = before

    @contextmanager
    def keeping(self) -> Iterator[dict[int, Results]]:
        """Within it the results of the first run of every graph are kept, by the index of the graph.

        Conditions that graphs check end no run: what they are made of is a value among the results.
        """
        kept: dict[int, Results] = {}
        self._kept = kept
        try:
            yield kept
        finally:
            self._kept = None

    def _replaceable(self, graph: TracedGraph, boxed: Boxed) -> Boxed:
        @as_boxed
        def call(arguments: list[Any]) -> Any:
            return self._execute(graph, arguments) if self._execute else boxed(arguments)

        return call

    def dump_run(self, graph: CompiledGraph, inputs: Mapping[str, Argument], number: int = 1) -> None:
        """Lets the dump, if there is one, hold these inputs, by name, of a recorded run of a graph, of which that
        is the ``number``."""
        if self._dump and graph.index in self._dumped:
            order = graph.runs[number - 1].number
            self._dump.add_inputs(self._dumped[graph.index], inputs, order, number)

    def name_run(self, graph: int, inputs: Mapping[str, str], modules: Mapping[str, str]) -> None:
        """Lets the dump, if there is one, know of the run that it holds of the graph of that index the caller's names
        of ``inputs``, and ``modules``, paths by FX node that the nodes do not know themselves."""
        if self._dump and graph in self._dumped:
            self._dump.add_names(self._dumped[graph], inputs, modules)

    def _keep(self, graph: CompiledGraph) -> Boxed:
        graph.program.model.metadata_props[provenance.GRAPH] = str(graph.index)
        if self._dump:
            added = self._dump.add_graph(
                graph.program.model, graph.graph_module, graph.phase, graph.compile_id, is_piece=graph.is_piece
            )
            self._dumped[graph.index] = added
        self.graphs.append(graph)

        @as_boxed
        def call(arguments: list[Any]) -> Any:
            taken = tuple(arguments)
            arguments.clear()
            with _RECORDING:
                is_first = graph.record(taken, next(_RUNS))
                if is_first and self._dump:
                    self.dump_run(graph, graph.named_inputs())
            computed = graph.program.computed(*taken)
            if is_first and self._kept is not None:
                self._kept[graph.index] = Results(computed)
            return graph.program.returned(taken, computed.values(), checked=self._kept is None)

        return call


def debug_backend(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """``torch.compile(model, backend=dort_compare.debug_backend)``: lowers to ONNX, runs on ONNX Runtime.

    ``options`` are those of DebugBackend, ``storage`` included; make a DebugBackend to read the graphs afterwards.
    """
    refuse_mode(mode)
    return DebugBackend(**keywords(options))(graph_module, example_inputs)


def debug_compiler(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    phase: Phase = "inference",
    dump_prefix: str | Path | None = None,
    target_opset: int | None = None,
    storage: Storage | None = None,
    **options: Any,
) -> Boxed:
    """Compiles one graph, as fw_compiler, bw_compiler or inference_compiler of an ``aot_autograd`` of your own.

    ``dump_prefix`` is a path: ``folder/llama`` writes ``folder/llama_0.onnx`` and so on. The result is boxed.
    """
    if dump_prefix is not None:
        prefix = Path(dump_prefix)
        options |= {"dump": prefix.parent, "dump_prefix": prefix.name}
    backend = DebugBackend(storage=storage, target_opset=target_opset, **options)
    return backend.compile_graph(graph_module, example_inputs, phase=phase)
