"""A model, its compiled graphs and their ONNX models, held against one another: the stages of a comparison in order."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from dort_compare.backends import CompiledGraph, DebugBackend
from dort_compare.backends.record import Results
from dort_compare.compiled import Compiled, graph_run, run_other
from dort_compare.dtypes import HALF
from dort_compare.errors import UsageError, one_line
from dort_compare.measure.departure import first_departure
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.measure.observer import Observed, Observer, settle
from dort_compare.measure.optimized import Optimized, judge_shipped, shipped_rows, unexplained
from dort_compare.measure.outcome import OutcomeRow, outcome_of, precision_of, refuse_chance
from dort_compare.measure.pictures import Pictures
from dort_compare.measure.precision import Precision, PrecisionWatch
from dort_compare.measure.reach import Lineage
from dort_compare.measure.rows import Row
from dort_compare.measure.scatter import within
from dort_compare.measure.suggest import suggest_fp32
from dort_compare.measure.tracing import EagerModules, Tracing
from dort_compare.report import Report
from dort_compare.report.environment import environment, settings
from dort_compare.report.progress import Waiting
from dort_compare.trace import GraphRun, Outcome, run_module
from dort_compare.trace.executions import MEMORY
from dort_compare.trace.in_float64 import run_in_float64
from dort_compare.trace.modules import Call

_LOG = logging.getLogger(__name__)
_SCATTER = "how far rounding scatters the results"


@dataclass(frozen=True)
class Effort:
    """What a comparison is to spend its time on.

    ``memory`` bounds the MiB of torch's values that are compared at a time, ``repeats`` says how often ONNX Runtime
    computes each value on the same operands: one that changes from run to run is named before anything else.
    ``optimized`` compares the values that survive ONNX Runtime's optimizers too, as they come out then. Without it that
    is done only for graphs of which a result departs although none of their ops does.
    ``suggest_fp32`` searches for the few nodes that, kept in float32, bring outputs and gradients back inside their
    floor (True) or within a relative error of norms (a number).

    Raises UsageError for what makes no sense.
    """

    memory: int = MEMORY
    repeats: int = 1
    optimized: bool = False
    suggest_fp32: bool | float = False

    def __post_init__(self) -> None:
        for name, number in (("memory", self.memory), ("repeats", self.repeats)):
            if type(number) is not int or number < 1:
                raise UsageError(f"{name} is {number!r}; give a whole number, at least 1")
        if not isinstance(self.optimized, bool):
            raise UsageError(f"optimized is {self.optimized!r}; give True or False")
        target = self.suggest_fp32
        if not isinstance(target, bool) and not (isinstance(target, float) and 0 < target < 1):
            raise UsageError(f"suggest_fp32 is {target!r}; give True, or a relative error between 0 and 1")


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
    effort: Effort = Effort(),
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
    with Waiting() as waiting:
        return _compare(model, call, backend, dynamic, effort, beside, waiting)


def _compare(
    model: nn.Module,
    call: Call,
    backend: DebugBackend,
    dynamic: bool | None,
    effort: Effort,
    beside: Mapping[str, Any],
    waiting: Waiting,
) -> Comparison:
    precision = precision_of(model, call)

    @functools.cache
    def exact() -> Outcome:
        waiting.stage("the model in float64")
        return run_in_float64(model, call)

    if precision in HALF:
        exact()  # takes the most memory: before any inputs of graphs are kept
    waiting.stage("eager")
    modules = EagerModules(model)
    with modules.watching():
        eager = run_module(model, dict(model.named_parameters()), call)
    others: list[OutcomeRow] = []
    for name, other in beside.items():
        waiting.stage(f"compiling, and the model compiled by {name}")
        others += outcome_of(name, eager, run_other(name, other, model, call, dynamic), exact, precision)
    waiting.stage("compiling, and the compiled model")
    before, left = len(backend.graphs), len(backend.fallbacks)
    compiled_model = Compiled(model, backend, dynamic)
    with backend.keeping() as shipped:
        compiled = compiled_model.run(call)
    fallbacks = tuple(backend.fallbacks[left:])
    if not backend.graphs[before:] and not fallbacks:
        why = compiled_model.refusal
        raise UsageError(f"torch.compile made no graph of the model: there is nothing to compare{why and f'; {why}'}")
    refuse_chance(eager, compiled, precision, lambda: run_module(model, dict(model.named_parameters()), call))
    waiting.stage("the graphs on torch's kernels")
    tracing = Tracing(model, backend, lambda: compiled_model.run(call), modules, precision)
    tracing.settle_in_float64(lambda: run_in_float64(model, call))
    graphs = sorted((graph for graph in backend.graphs[before:] if graph.runs), key=lambda graph: graph.runs[0].number)
    runs = [graph_run(graph, dict(model.named_parameters())) for graph in graphs]
    for run in runs:
        backend.name_inputs(run.index, run.input_names)
    values = _values(backend, graphs, runs, shipped, effort, waiting)
    outcome = outcome_of("debug", eager, compiled, exact, precision)
    traced = outcome_of("traced", eager, tracing.reference, exact, precision)
    has_cause = any(row.status == "diverges" for row in values.rows)
    if all(row.ok for row in traced):
        tracing.settle_unread()
    waiting.stage(_SCATTER)
    scatters = tracing.scatters((*others, *traced) if has_cause else (*outcome, *others, *traced))
    outcome, traced = within((*outcome, *others), scatters), within(traced, scatters)
    module_rows = tracing.rows(traced)
    departure = first_departure(module_rows, traced)
    if not effort.optimized:
        suspects = unexplained(values.rows, outcome, values.observed, departure)
        pairs = [pair for pair in zip(graphs, runs, strict=True) if pair[1].index in suspects]
        values = _looked_closer(values, backend, pairs, effort, waiting)
    verdict, causes = judge_shipped(values.rows, outcome, Lineage(runs), departure, values.optimized, values.observed)
    waiting.stage("what to keep in float32")
    target = effort.suggest_fp32
    report = Report(
        verdict,
        causes,
        values.rows,
        outcome,
        fallbacks,
        tuple(graph.id for graph in graphs),
        module_rows,
        values.optimized,
        values.observed,
        values.precision,
        suggest_fp32(runs, target=None if target is True else target) if target else None,
        {**settings(call, backend.options, dynamic), **asdict(effort)},
        environment(),
    )
    return Comparison(report, eager, [*backend.graphs[before:]])


@dataclass(frozen=True)
class _Values:
    """What was found of the values of all graphs."""

    rows: tuple[Row, ...]
    optimized: Optimized | None
    observed: tuple[Observed, ...]
    precision: Precision


def _values(
    backend: DebugBackend,
    graphs: Sequence[CompiledGraph],
    runs: Sequence[GraphRun],
    shipped: dict[int, Results],
    effort: Effort,
    waiting: Waiting,
) -> _Values:
    rows: list[Row] = []
    observed: list[Observed] = []
    optimized = Optimized((), 0) if effort.optimized else None
    precision = PrecisionWatch()
    for graph, run in zip(graphs, runs, strict=True):
        results = shipped.pop(graph.index, None)
        computed = (results and results.values()) or graph.program.computed(*run.inputs.values())
        observer = Observer(run.phase, run.index, "lowered", computed)
        del results, computed  # the observer lets go of each once it is seen
        pictures = Pictures()
        passing = graph_rows(run, effort.memory, effort.repeats, (observer.see, precision.graph(run), pictures.see))
        found = pictures.on(waiting.each(f"values of the {run.phase} graph", passing, run.calls))
        rows += found
        observers = [observer]
        if optimized is not None:
            made, observer = _shipped(backend, graph, run, found, effort, waiting)
            optimized += made
            observers.append(observer)
        observed += _settled(observers, run, waiting)
    return _Values(tuple(rows), optimized, tuple(observed), precision.seen)


def _shipped(
    backend: DebugBackend, graph: CompiledGraph, run: GraphRun, rows: Sequence[Row], effort: Effort, waiting: Waiting
) -> tuple[Optimized, Observer]:
    """The values of a graph's optimized model, and what was seen of the program's results beside them."""
    observer = Observer(run.phase, run.index, "optimized", graph.program.computed(*run.inputs.values()))
    waiting.stage(f"values of the optimized {run.phase} graph")
    settings, rewrites = backend.options.session, bool(backend.options.rewrites)
    return shipped_rows(run, rows, settings, effort.memory, (observer.see,), rewrites), observer


def _settled(observers: Sequence[Observer], run: GraphRun, waiting: Waiting) -> list[Observed]:
    if any(each.unsettled for each in observers):
        waiting.stage(_SCATTER)
        settle(observers, run)
    return [seen for each in observers for seen in each.seen]


def _looked_closer(
    values: _Values,
    backend: DebugBackend,
    pairs: Sequence[tuple[CompiledGraph, GraphRun]],
    effort: Effort,
    waiting: Waiting,
) -> _Values:
    """``values`` with those of the optimized models of some graphs, as far as these can be compared.

    Nothing is added where these say no more than that a right op enlarges what is noise.
    """
    unseen = {seen.graph for seen in values.observed if not seen.ok}
    for graph, run in pairs:
        rows = [row for row in values.rows if row.graph == run.index]
        try:
            made, observer = _shipped(backend, graph, run, rows, effort, waiting)
        except Exception as problem:  # noqa: BLE001  (nobody asked for it: the verdict stands without)
            _LOG.debug("%s graph %d is not compared optimized: %s", run.phase, run.index, one_line(problem))
            continue
        if run.index not in unseen and not any(row.status == "diverges" for row in made.rows):
            continue
        optimized = (values.optimized or Optimized((), 0)) + made
        values = replace(values, optimized=optimized, observed=(*values.observed, *_settled([observer], run, waiting)))
    return values
