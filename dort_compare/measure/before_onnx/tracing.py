"""Plain eager against the compiled model with its graphs on torch's kernels: what enters before ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn

from dort_compare.align.sightings import Lookout, RunGraph, Sighting
from dort_compare.align.traced_calls import modules_of
from dort_compare.backends import DebugBackend
from dort_compare.backends.recorded_runs import TracedGraph
from dort_compare.measure.before_onnx.module_matches import Matches
from dort_compare.measure.before_onnx.modules import ModuleRow, module_rows
from dort_compare.measure.noise.scatter import Sample, Scatter, samples
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.outcome_scatters import Scatters, outcome_scatters, settled
from dort_compare.provenance import module_path
from dort_compare.trace import Outcome
from dort_compare.trace.eager_modules import EagerValue, module_values
from dort_compare.trace.module_calls import ModuleCalls, Place
from dort_compare.trace.shaken import shaken
from dort_compare.trace.watched import See, run_watched


class EagerModules:
    """What the modules of the plain model gave in one run, kept by reference: autograd holds most of it anyway."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.held: dict[Place, EagerValue] = {}
        self.calls = ModuleCalls(model)
        self._known: set[object] = set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within it the plain model is to be run."""
        with module_values(self._model, self._hold) as self.calls:
            yield

    def _hold(self, place: Place, tensor: torch.Tensor) -> None:
        """What one module took as another returned it is held once."""
        held = EagerValue(tensor)
        if place.kind != "input" or held.content not in self._known:
            self.held[place] = held
        self._known.add(held.content)


class Tracing:
    """The compiled model once more, every graph on torch's kernels, held against the plain one module by module.

    ``call`` runs the compiled model of ``backend``. ``reference`` is its outcome.
    """

    def __init__(
        self,
        model: nn.Module,
        backend: DebugBackend,
        call: Callable[[], Outcome],
        eager: EagerModules,
        precision: torch.dtype | None,
    ) -> None:
        self._model, self._backend, self._call = model, backend, call
        self._in_eager = eager.calls.begun
        self._matches = Matches(eager.held, precision)
        eager.held.clear()
        self.reference, lookout = self._run(run_watched, self._matches.see)
        self._in_graphs, self._runs = lookout.calls.begun, lookout.runs
        self._matches.forget()

    def settle_in_float64(self, run: Callable[[], object]) -> None:
        """Has ``run`` run the plain model in float64, if any departs: what does no further than eager is settled."""
        if self._matches.suspects:
            with module_values(self._model, self._matches.hold_against_float64):
                run()

    def settle_unread(self) -> None:
        """Settles suspects that equal a value computed within their module: what the graphs do not pass on, as nobody
        reads it, was held against another value. To be called where all outputs and gradients agree."""
        calls = ModuleCalls(self._model)

        def run(graph_module: fx.GraphModule, arguments: list[Any], see: See) -> Any:
            def shown(node: fx.Node, value: torch.Tensor) -> None:
                paths = [calls.name(each) for each in modules_of(node)]
                self._matches.settle_within(paths, node, value)
                see(node, value)

            return run_watched(graph_module, arguments, shown)

        if self._matches.suspects:
            self._run(run, lambda _: None)

    def scatters(self, rows: Sequence[OutcomeRow]) -> Scatters:
        """How far outputs and gradients scatter where roundings fall by chance; nothing where no row or module asks.

        Modules whose departure scatter explains are settled. A sample costs a few steps; there are at most sixteen.
        """
        scatters: Scatters = {}
        places: dict[Place, Scatter] = {}

        def asks() -> bool:
            return bool(self._matches.suspects) or not all(row.ok for row in settled(rows, scatters))

        for sample, shown in samples(asks, lambda seed, sample: self._shaken(seed, sample, places)):
            scatters = outcome_scatters(self.reference, shown, sample, scatters)
            self._matches.settle(places)
        return scatters

    def _shaken(self, seed: int, sample: Sample, places: dict[Place, Scatter]) -> Outcome:
        """One run with roundings by chance; ``places`` grows by what it shows of the suspects.

        Raises where torch.compile would leave code to plain eager for being compiled too often, as for ever other
        numbers: what that gives is no scatter of the compiled model.
        """

        def see(sighting: Sighting) -> None:
            for place in self._matches.places(sighting):
                match = self._matches.found.get(place)
                if match is not None and match.value is not None and match.is_at(sighting):
                    found = Scatter.of(match.value, sighting.value, sample)
                    places[place] = places.get(place, Scatter()) | found

        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            return self._run(shaken(seed, sample.roundings), see)[0]

    def rows(self, traced: Sequence[OutcomeRow]) -> tuple[ModuleRow, ...]:
        """One for every result of a module and every gradient of one; ``traced`` are the outputs and gradients."""
        departs = not all(row.ok for row in traced)
        return module_rows(self._matches, self._in_eager, self._in_graphs, departs)

    def modules(self, graph: TracedGraph, ran: int) -> list[Mapping[str, str]]:
        """For each run of a graph the paths of modules by FX node, where Python is in a module as the graph runs: to
        torch, which traces the code of many modules of a class once, paths begin there, and no module is named where
        they do. Paths that nodes know themselves are left out. None are known where the graph, which ``ran`` so often
        in ONNX Runtime, did not here."""
        runs = self._runs.get(graph, [])
        if len(runs) != ran:
            return [{}] * ran
        known = {node: module_path(node) for node in graph.graph_module.graph.nodes}
        return [
            {node.name: path for node in known if run.active and (path := run.module_of(node)) != known[node]}
            for run in runs
        ]

    def _run(self, run: RunGraph, see: Callable[[Sighting], None]) -> tuple[Outcome, Lookout]:
        lookout = Lookout(self._model, run, see)
        with self._backend.executing(lookout.execute), lookout.watching():
            return self._call(), lookout
