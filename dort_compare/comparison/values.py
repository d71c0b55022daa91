"""The values of all graphs, as they were lowered and as ONNX Runtime's optimizers make them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from dort_compare.backends import CompiledGraph, DebugBackend
from dort_compare.backends.recorded_runs import Results
from dort_compare.comparison.effort import Effort
from dort_compare.errors import one_line
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.measure.half.precision import Precision, PrecisionWatch
from dort_compare.measure.observer import Observed, Observer, settle
from dort_compare.measure.optimized import Optimized, optimized_rows
from dort_compare.measure.pictures import Pictures
from dort_compare.measure.rows import Row
from dort_compare.report.progress import SCATTER, Waiting
from dort_compare.trace import GraphRun

_LOG = logging.getLogger("dort_compare.comparison")
Recorded = tuple[CompiledGraph, GraphRun]
"""A compiled graph with its first run."""


@dataclass(frozen=True)
class Values:
    """What was found of the values of all graphs."""

    rows: tuple[Row, ...] = ()
    optimized: Optimized | None = None
    observed: tuple[Observed, ...] = ()
    precision: Precision = field(default_factory=Precision)

    @property
    def causes(self) -> dict[int, list[str]]:
        """The calls that depart by themselves, by graph."""
        found = defaultdict[int, list[str]](list)
        for row in self.rows:
            if row.status == "diverges":
                found[row.graph].append(row.call)
        return found


class Examination:
    """Measures the values of the graphs of one backend."""

    def __init__(self, backend: DebugBackend, effort: Effort, waiting: Waiting) -> None:
        self._backend = backend
        self._effort = effort
        self._waiting = waiting

    def values(self, recorded: Iterable[Recorded], shipped: dict[int, Results]) -> Values:
        """The values of the lowered models, and of the optimized ones where they are asked for.

        ``shipped`` is what the programs computed as the model ran, by graph; it is emptied on the way.
        """
        rows: list[Row] = []
        observed: list[Observed] = []
        optimized = Optimized((), 0) if self._effort.optimized else None
        precision = PrecisionWatch()
        for graph, run in recorded:
            observers = [self._lowered_observer(graph, run, shipped.pop(graph.index, None))]
            found = self._lowered(run, observers[0], precision, is_behind=any(row.status == "diverges" for row in rows))
            rows += found
            if optimized is not None:
                made, observer = self._optimized(graph, run, found)
                optimized += made
                observers.append(observer)
            observed += self._settled(observers, run)
        return Values(tuple(rows), optimized, tuple(observed), precision.seen)

    def looked_closer(self, values: Values, recorded: Iterable[Recorded]) -> Values:
        """``values`` with those of the optimized models of some graphs, as far as these can be compared.

        Nothing is added where these say no more than that a right op enlarges what is noise.
        """
        unseen = {seen.graph for seen in values.observed if not seen.ok}
        for graph, run in recorded:
            try:
                made, observer = self._optimized(graph, run, [row for row in values.rows if row.graph == run.index])
            except Exception as problem:  # noqa: BLE001  (nobody asked for it: the verdict stands without)
                _LOG.debug("%s graph %d is not compared optimized: %s", run.phase, run.index, one_line(problem))
                continue
            if run.index not in unseen and not any(row.status == "diverges" for row in made.rows):
                continue
            optimized = (values.optimized or Optimized((), 0)) + made
            values = replace(values, optimized=optimized, observed=(*values.observed, *self._settled([observer], run)))
        return values

    def _lowered_observer(self, graph: CompiledGraph, run: GraphRun, results: Results | None) -> Observer:
        """Holds what the program computed, once more where that is not known, or departs; it lets go of each once it is
        seen."""
        again = partial(graph.program.computed, *run.inputs.values())
        kept = results and results.values()
        return Observer(run.phase, run.index, "lowered", kept or again(), again if kept else None)

    def _lowered(self, run: GraphRun, observer: Observer, precision: PrecisionWatch, *, is_behind: bool) -> list[Row]:
        """The rows of a graph's lowered model, with pictures; ``is_behind`` as of ``graph_rows``."""
        pictures = Pictures()
        watches = (observer.see, precision.graph(run), pictures.see)
        passing = graph_rows(run, self._effort.memory, self._effort.repeats, watches, is_behind=is_behind)
        return pictures.on(self._waiting.each(f"values of the {run.phase} graph", passing, run.calls))

    def _optimized(self, graph: CompiledGraph, run: GraphRun, rows: Sequence[Row]) -> tuple[Optimized, Observer]:
        """The values of a graph's optimized model, and what was seen of the program's results beside them."""
        observer = Observer(run.phase, run.index, "optimized", graph.program.computed(*run.inputs.values()))
        self._waiting.stage(f"values of the optimized {run.phase} graph")
        options = self._backend.options
        rewrites = bool(options.rewrites)
        return optimized_rows(run, rows, options.session, self._effort.memory, (observer.see,), rewrites), observer

    def _settled(self, observers: Sequence[Observer], run: GraphRun) -> list[Observed]:
        if any(each.unsettled for each in observers):
            self._waiting.stage(SCATTER)
            settle(observers, run)
        return [seen for each in observers for seen in each.seen]
