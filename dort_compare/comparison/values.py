"""The values of all graphs, as they were lowered and as ONNX Runtime's optimizers make them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter

from dort_compare.backends import CompiledGraph, DebugBackend
from dort_compare.backends.recorded_runs import Results
from dort_compare.comparison.effort import Effort
from dort_compare.errors import one_line
from dort_compare.measure.found import Values
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.measure.half.precision import PrecisionWatch
from dort_compare.measure.observer import Observed, Observer, settle
from dort_compare.measure.optimized import Optimized, optimized_rows
from dort_compare.measure.pictures import Pictures
from dort_compare.measure.rows import SEVERITY, Row
from dort_compare.report.progress import SCATTER, Waiting
from dort_compare.trace import GraphRun

_LOG = logging.getLogger("dort_compare.comparison")
_NONE = Optimized((), 0)


@dataclass(frozen=True)
class Recorded:
    """A compiled graph with those of its runs that are compared, in order; there is one at least."""

    graph: CompiledGraph
    runs: Sequence[GraphRun]


@dataclass(frozen=True)
class _RunValues:
    """What was found of the values of one run of one graph, in its lowered model or, ``optimized``, in that of ONNX
    Runtime's optimizers."""

    run: GraphRun
    rows: Sequence[Row]
    observed: Sequence[Observed]
    optimized: Optimized = _NONE

    @property
    def severity(self) -> int:
        """The worst status of a value, as ``SEVERITY`` ranks it."""
        return max((SEVERITY.get(row.status, 0) for row in self.rows), default=0)

    @property
    def departs(self) -> bool:
        """Whether a value departs by itself."""
        return self.severity == SEVERITY["diverges"]


class Examination:
    """Measures the values of the graphs of one backend."""

    def __init__(self, backend: DebugBackend, effort: Effort, waiting: Waiting) -> None:
        self._backend = backend
        self._effort = effort
        self._waiting = waiting

    def values(self, recorded: Iterable[Recorded], shipped: dict[int, Results]) -> Values:
        """The values of the lowered models, and of the optimized ones where they are asked for.

        ``shipped`` is what the programs computed as the model ran, each for the first time, by graph; it is emptied on
        the way.
        """
        shown: list[tuple[int, _RunValues]] = []
        observed: list[Observed] = []
        optimized = _NONE if self._effort.optimized else None
        precision = PrecisionWatch()
        for each in recorded:
            is_behind = any(found.departs for _, found in shown)
            lowered = partial(self._lowered, each.graph, shipped, precision, is_behind=is_behind)
            found = _worst(map(lowered, each.runs))
            observed += found.observed
            shown.append((each.graph.runs[found.run.number - 1].number, found))
            if optimized is not None:
                other = self._worst_optimized(each, found.rows)
                observed += other.observed
                optimized += other.optimized
        rows = tuple(row for _, found in sorted(shown, key=itemgetter(0)) for row in found.rows)
        return Values(rows, optimized, tuple(observed), precision.seen)

    def looked_closer(self, values: Values, recorded: Iterable[Recorded]) -> Values:
        """``values`` with those of the optimized models of some graphs, as far as these can be compared.

        Nothing is added where these say no more than that a right op enlarges what is noise.
        """
        unseen = {seen.graph for seen in values.observed if not seen.ok}
        for each in recorded:
            rows = [row for row in values.rows if row.graph == each.graph.index]
            try:
                found = self._worst_optimized(each, rows)
            except Exception as problem:  # noqa: BLE001  (nobody asked for it: the verdict stands without)
                graph, told = each.graph, one_line(problem)
                _LOG.debug("%s graph %d is not compared optimized: %s", graph.phase, graph.index, told)
                continue
            if each.graph.index not in unseen and not found.departs:
                continue
            optimized = (values.optimized or _NONE) + found.optimized
            values = replace(values, optimized=optimized, observed=(*values.observed, *found.observed))
        return values

    def _lowered(
        self,
        graph: CompiledGraph,
        shipped: dict[int, Results],
        precision: PrecisionWatch,
        run: GraphRun,
        *,
        is_behind: bool,
    ) -> _RunValues:
        """The values of a graph's lowered model, with pictures; ``is_behind`` as of ``graph_rows``."""
        pictures = Pictures()
        observer = self._lowered_observer(graph, run, shipped.pop(graph.index, None))
        watches = (observer.see, pictures.see, precision.graph(run))
        memory, repeats = self._effort.memory, self._effort.repeats
        rows = graph_rows(run, memory=memory, repeats=repeats, watches=watches, is_behind=is_behind)
        shown = pictures.on(self._waiting.each(f"values of the {_named(run)}", rows, run.calls))
        return _RunValues(run, shown, self._settled(observer, run))

    def _lowered_observer(self, graph: CompiledGraph, run: GraphRun, results: Results | None) -> Observer:
        """Holds what the program computed, once more where that is not known, or departs; it lets go of each once it is
        seen."""
        again = partial(graph.program.computed, *run.inputs.values())
        kept = results and results.values()
        return Observer(run.phase, run.index, "lowered", kept or again(), again if kept else None, run.number)

    def _worst_optimized(self, recorded: Recorded, rows: Sequence[Row]) -> _RunValues:
        """Of the optimized models; ``rows`` are those of the lowered one."""
        return _worst(self._optimized(recorded.graph, run, rows) for run in recorded.runs)

    def _optimized(self, graph: CompiledGraph, run: GraphRun, rows: Sequence[Row]) -> _RunValues:
        """The values of a graph's optimized model, and what was seen of the program's results beside them."""
        computed = graph.program.computed(*run.inputs.values())
        observer = Observer(run.phase, run.index, "optimized", computed, run=run.number)
        self._waiting.stage(f"values of the optimized {_named(run)}")
        memory, watches = self._effort.memory, (observer.see,)
        options = self._backend.options
        rewrites = bool(options.rewrites)
        made = optimized_rows(run, rows, options.session, rewrites=rewrites, memory=memory, watches=watches)
        return _RunValues(run, made.rows, self._settled(observer, run), made)

    def _settled(self, observer: Observer, run: GraphRun) -> list[Observed]:
        if observer.unsettled:
            self._waiting.stage(SCATTER)
            settle(observer, run)
        return observer.seen


def _named(run: GraphRun) -> str:
    return f"{run.phase} graph" + (f", run {run.number}" if run.number > 1 else "")


def _worst(runs: Iterator[_RunValues]) -> _RunValues:
    """Of the runs of a graph, one at least, the first of those with the worst status, with what was observed of all
    that were measured: none is behind one in which a value departs by itself."""
    worst = next(runs)
    observed = [*worst.observed]
    while not worst.departs and (later := next(runs, None)):
        observed += later.observed
        worst = max(worst, later, key=lambda found: found.severity)
    return replace(worst, observed=observed)
