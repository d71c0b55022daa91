"""The stages of a comparison, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from dort_compare.backends import CompiledGraph, DebugBackend, Fallback
from dort_compare.backends.graph_breaks import attempts, breaks_without_a_graph
from dort_compare.backends.recorded_runs import ComparedGraph, Results
from dort_compare.comparison.effort import USUAL, Effort
from dort_compare.comparison.heap import kept_memory
from dort_compare.comparison.subject import Subject
from dort_compare.comparison.values import Examination, Recorded
from dort_compare.comparison.whole import whole
from dort_compare.compiled import Compiled, graph_runs, run_other
from dort_compare.dtypes import HALF
from dort_compare.errors import StaleRecordError, UsageError
from dort_compare.measure.before_onnx.tracing import EagerModules, Tracing
from dort_compare.measure.found import Values, Whole
from dort_compare.measure.half.suggest import suggest_fp32
from dort_compare.measure.optimized_verdict import judge_with_optimized, unexplained
from dort_compare.measure.outcome import OutcomeRow, refuse_chance
from dort_compare.measure.reach import Lineage
from dort_compare.report import Report
from dort_compare.report.environment import environment, settings
from dort_compare.report.progress import Waiting
from dort_compare.trace import GraphRun, Outcome
from dort_compare.trace.call import Call


@dataclass(frozen=True)
class Comparison:
    """A report with what it was made from: what plain eager computed, and the graphs."""

    report: Report
    eager: Outcome
    graphs: Sequence[CompiledGraph]


def compare_with(
    model: nn.Module,
    call: Call,
    backend: DebugBackend,
    dynamic: bool | None = None,
    effort: Effort = USUAL,
    beside: Mapping[str, Any] = MappingProxyType({}),
) -> Comparison:
    """Like ``compare``, for a backend of the caller's; returns what eager computed, and the graphs, beside the report.

    A module that torch.compile has wrapped already is compared as the module inside. ``beside`` holds other backends
    by name, whose outputs and gradients are held to the same reference.
    """
    if isinstance(model, torch._dynamo.OptimizedModule):
        model = model._orig_mod
    if backend.options.max_runs < 1:
        raise UsageError("max_runs is 0: without a recorded run there is nothing to compare")
    with Waiting() as waiting, kept_memory():
        return _Stages(Subject(model, call, waiting), backend, dynamic, effort, waiting).comparison(beside)


@dataclass(frozen=True)
class _Ran:
    """The compiled model, which has run once: what came out, and what its programs computed on the way."""

    model: Compiled
    outcome: Outcome
    graphs: Sequence[CompiledGraph]
    fallbacks: tuple[Fallback, ...]
    graph_breaks: tuple[str, ...]
    shipped: dict[int, Results]

    def recorded(self, given: Mapping[str, torch.Tensor]) -> list[tuple[CompiledGraph, list[GraphRun]]]:
        """The graphs that ran, in the order of their first runs, each with its recorded runs.

        Raises StaleRecordError where what the first run of one read has been written since; later ones are left out.
        """
        graphs = sorted((graph for graph in self.graphs if graph.runs), key=lambda graph: graph.runs[0].number)
        return [(graph, [*_still(graph_runs(graph, given))]) for graph in graphs]


class _Stages:
    """What the stages of one comparison share."""

    def __init__(
        self, subject: Subject, backend: DebugBackend, dynamic: bool | None, effort: Effort, waiting: Waiting
    ) -> None:
        self._subject = subject
        self._backend = backend
        self._dynamic = dynamic
        self._effort = effort
        self._waiting = waiting

    def comparison(self, beside: Mapping[str, Any]) -> Comparison:
        subject, examination = self._subject, Examination(self._backend, self._effort, self._waiting)
        if subject.precision in HALF:
            subject.exact()  # takes the most memory: before any inputs of graphs are kept
        eager, modules = subject.run_watched()
        others = self._others(eager, beside)
        ran = self._compiled()
        refuse_chance(eager, ran.outcome, subject.precision, subject.run)
        tracing = self._traced(ran.model, modules)
        recorded = self._recorded(ran, tracing)
        values = examination.values(recorded, ran.shipped)
        lineage = self._lineage(recorded)
        ours = subject.held("debug", eager, ran.outcome)
        traced = subject.held("traced", eager, tracing.reference)
        asking = _asking(ours, values.causes, lineage)
        found = whole((*ours, *others), traced, tracing, (*asking, *others), self._waiting)
        if not self._effort.optimized:
            suspects = unexplained(values, found)
            values = examination.looked_closer(values, [each for each in recorded if each.graph.index in suspects])
        self._dump_later(recorded, values.later_runs)
        return Comparison(self._report(ran, recorded, values, found, lineage), eager, ran.graphs)

    def _others(self, eager: Outcome, beside: Mapping[str, Any]) -> list[OutcomeRow]:
        """Outputs and gradients by the backends beside ours."""
        subject = self._subject
        rows: list[OutcomeRow] = []
        for name, other in beside.items():
            self._waiting.stage(f"compiling, and the model compiled by {name}")
            outcome = run_other(name, other, subject.model, subject.call, self._dynamic)
            rows += subject.held(name, eager, outcome)
        return rows

    def _compiled(self) -> _Ran:
        """Compiles the model and runs it. Raises UsageError where torch.compile makes no graph of it."""
        self._waiting.stage("compiling, and the compiled model")
        backend = self._backend
        before, left, broken = len(backend.graphs), len(backend.fallbacks), len(backend.graph_breaks)
        compiled = Compiled(self._subject.model, backend, self._dynamic)
        tried = attempts()
        with backend.keeping() as shipped:
            outcome = compiled.run(self._subject.call)
        graphs, fallbacks = backend.graphs[before:], tuple(backend.fallbacks[left:])
        of_graphs = backend.graph_breaks[broken:]
        breaks = (*of_graphs, *breaks_without_a_graph(tried, of_graphs))
        if not graphs and not fallbacks:
            why = next((f"; {told}" for told in (compiled.refusal, *breaks) if told), "")
            raise UsageError(f"torch.compile made no graph of the model: there is nothing to compare{why}")
        return _Ran(compiled, outcome, graphs, fallbacks, breaks, shipped)

    def _traced(self, compiled: Compiled, modules: EagerModules) -> Tracing:
        """The compiled model once more, on torch's kernels."""
        self._waiting.stage("the graphs on torch's kernels")
        subject = self._subject
        tracing = Tracing(subject.model, self._backend, lambda: compiled.run(subject.call), modules, subject.precision)
        tracing.settle_in_float64(subject.run_in_float64)
        return tracing

    def _recorded(self, ran: _Ran, tracing: Tracing) -> list[Recorded]:
        """The graphs with their runs, and in which modules these are; the dump comes to know the names."""
        recorded = []
        for graph, runs in ran.recorded(self._subject.given):
            modules = tracing.modules(graph.traced, graph.ran)
            placed = [replace(run, modules=known) for run, known in zip(runs, modules, strict=False)]
            recorded.append(Recorded(graph, placed))
            self._backend.name_run(graph.index, placed[0].input_names, placed[0].modules)
        return recorded

    def _lineage(self, recorded: Sequence[Recorded]) -> Lineage:
        return Lineage(
            [each.runs[0] for each in recorded],
            has_loss=self._subject.call.loss is not None,
            later=[run for each in recorded for run in each.runs[1:]],
            repeated=[each.graph.index for each in recorded if each.graph.ran > 1],
        )

    def _dump_later(self, recorded: Sequence[Recorded], later: Mapping[int, int]) -> None:
        """Lets the dump hold the later run of a graph, by number, that its values are of."""
        for each in recorded:
            if number := later.get(each.graph.index):
                run = each.runs[number - 1]
                self._backend.dump_run(each.graph, run.inputs, number)
                self._backend.name_run(run.index, run.input_names, run.modules)

    def _report(
        self, ran: _Ran, recorded: Sequence[Recorded], values: Values, found: Whole, lineage: Lineage
    ) -> Report:
        runs = [each.runs[0] for each in recorded]
        verdict, causes = judge_with_optimized(values, found, lineage, len(ran.fallbacks))
        self._waiting.stage("what to keep in float32")
        target = self._effort.suggest_fp32
        return Report(
            verdict=verdict,
            causes=causes,
            rows=values.rows,
            outputs=found.outputs,
            fallbacks=ran.fallbacks,
            graph_breaks=ran.graph_breaks,
            graphs=tuple(ComparedGraph.of(each.graph, len(each.runs)) for each in recorded),
            modules=found.modules,
            optimized=values.optimized,
            observed=values.observed,
            precision=values.precision,
            suggestion=suggest_fp32(runs, target=None if target is True else target) if target else None,
            settings={**settings(self._subject.call, self._backend.options, self._dynamic), **asdict(self._effort)},
            environment=environment(),
        )


def _asking(
    outcome: Sequence[OutcomeRow], causes: Mapping[int, Sequence[str]], lineage: Lineage
) -> Sequence[OutcomeRow]:
    """The results without a cause yet: where there are ``causes``, the gradients that none of these leads to."""
    if not causes:
        return outcome
    without = lineage.unreached(causes)
    return [row for row in outcome if row.kind == "gradient" and row.name in without]


def _still(runs: Iterator[GraphRun]) -> Iterator[GraphRun]:
    """The first run, and the later ones up to one of which an input has been written since."""
    yield next(runs)
    with suppress(StaleRecordError):
        yield from runs
