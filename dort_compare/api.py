"""``compare(...)``: the one call that strings the rooms together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.utils._pytree import tree_leaves, tree_map

from dort_compare.backends import CompiledGraph, DebugBackend
from dort_compare.dump import staged
from dort_compare.errors import DortError, UsageError
from dort_compare.measure.floor import coarsest
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.measure.outcome import OutcomeRow, outcome_rows
from dort_compare.measure.reach import Dataflow
from dort_compare.measure.verdict import judge
from dort_compare.report import Report
from dort_compare.report.progress import Waiting
from dort_compare.runtime.providers import once
from dort_compare.trace import GraphRun, Outcome, run_module
from dort_compare.trace.modules import Call, Loss


@dataclass(frozen=True)
class Comparison:
    """A report with what it was made from: both executions, the float64 one (empty where the model cannot run so), the
    coarsest dtype that the model computes in, the graphs."""

    report: Report
    eager: Outcome
    compiled: Outcome
    exact: Outcome
    precision: torch.dtype | None
    graphs: Sequence[CompiledGraph]


def compare(
    model: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    backward: bool = False,
    loss: Loss | None = None,
    autocast: torch.dtype | None = None,
    provider: str = "cpu",
    dump: str | Path | None = None,
    dynamic: bool | None = None,
    **options: Any,
) -> Report:
    """Compiles ``model``, runs it on ONNX Runtime and compares every value with eager torch.

    ``args`` and ``kwargs`` are the model's. ``backward`` compares the gradients of ``loss(output)`` too, by default of
    the outputs' product with fixed random tensors. ``autocast`` is a dtype for ``torch.autocast``. ``provider`` is
    "cpu" or "cuda" (the model and its arguments must be there). ``dump`` names a folder for graphs, models and inputs,
    which appears, or takes the place of an older dump, once the comparison is complete.
    ``dynamic`` goes to ``torch.compile``, everything else (``exporter``, ``target_opset``, ...) to DebugBackend.

    Raises DortError, or one of its subclasses, for what cannot be compared; divergence is not an error.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"model is a {type(model).__name__}; give a torch.nn.Module")
    if autocast not in (None, torch.float16, torch.bfloat16):
        raise UsageError(f"autocast is {autocast!r}; give torch.float16, torch.bfloat16 or None")
    if not isinstance(provider, str):
        raise UsageError(f"provider is {provider!r}; give 'cpu' or 'cuda'")
    if "storage" in options:
        raise UsageError("compare keeps its own graphs; give storage to DebugBackend")
    if loss is not None and not backward:
        raise UsageError("a loss is only used for gradients; give backward=True with it")
    if not isinstance(args, (tuple, list)):
        raise UsageError(f"args is a {type(args).__name__}; give the model's arguments as a tuple, such as (x,)")
    call = Call(tuple(args), dict(kwargs or {}), backward, loss, autocast)
    with staged(Path(dump)) if dump is not None else nullcontext() as folder:
        backend = DebugBackend(**{**_defaults(provider), "dump": folder, **options})
        return compare_with(model, call, backend, dynamic).report


def compare_with(model: nn.Module, call: Call, backend: DebugBackend, dynamic: bool | None = None) -> Comparison:
    """Like ``compare``, for a backend of the caller's; returns the executions beside the report.

    A module that torch.compile has wrapped already is compared as the module inside.
    """
    model = getattr(model, "_orig_mod", model)
    if backend.options.max_runs < 1:
        raise UsageError("max_runs is 0: without a recorded run there is nothing to compare")
    with Waiting() as waiting:
        return _compare(model, call, backend, dynamic, waiting)


def _compare(model: nn.Module, call: Call, backend: DebugBackend, dynamic: bool | None, waiting: Waiting) -> Comparison:
    parameters = dict(model.named_parameters())
    waiting.stage("the model in float64")
    exact = _in_float64(model, call)  # takes the most memory: before any inputs of graphs are kept
    waiting.stage("eager")
    eager = run_module(model, parameters, call)
    waiting.stage("compiling, and the compiled model")
    compiled = run_compiled(model, call, backend, dynamic)
    precision = _precision(model, call)
    outcome = tuple(outcome_of("debug", eager, compiled, exact, precision))
    if not backend.graphs and not backend.fallbacks:
        raise UsageError("torch.compile made no graph of the model: there is nothing to compare")
    graphs = sorted((graph for graph in backend.graphs if graph.runs), key=lambda graph: graph.runs[0].number)
    runs = [graph_run(graph, parameters) for graph in graphs]
    calls = sum(node.op == "call_function" for run in runs for node in run.graph_module.graph.nodes)
    rows = tuple(waiting.each("values compared", (row for run in runs for row in graph_rows(run)), calls))
    verdict, causes = judge(rows, outcome, Dataflow(runs))
    report = Report(verdict, causes, rows, outcome, tuple(backend.fallbacks), tuple(graph.id for graph in graphs))
    return Comparison(report, eager, compiled, exact, precision, backend.graphs)


def run_compiled(model: nn.Module, call: Call, backend: Any, dynamic: bool | None = None) -> Outcome:
    """The outcome of ``torch.compile(model, backend=backend)``; errors of ours come without torch's wrapping.

    Recurrent layers, which torch leaves uncompiled by default, are compiled too.
    """
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, dynamic=dynamic)
    try:
        with torch._dynamo.config.patch(allow_rnn=True):
            return run_module(compiled, dict(model.named_parameters()), call)
    except BackendCompilerFailed as problem:
        if isinstance(problem.inner_exception, DortError):
            raise problem.inner_exception from None
        raise


def graph_run(graph: CompiledGraph, parameters: Mapping[str, torch.Tensor] | None = None) -> GraphRun:
    """The first recorded run of a compiled graph, with the names of those of its inputs that are ``parameters``."""
    names = {id(tensor): name for name, tensor in (parameters or {}).items()}
    sources = graph.runs[0].sources
    return GraphRun(
        graph.phase,
        graph.index,
        graph.graph_module,
        graph.onnx_model,
        graph.named_inputs(),
        graph.program.providers,
        graph.compile_id,
        {name: names[id(source)] for name, source in sources.items() if id(source) in names},
    )


def outcome_of(
    backend: str, eager: Outcome, compiled: Outcome, exact: Outcome, precision: torch.dtype | None
) -> Iterator[OutcomeRow]:
    """Rows for the outputs and gradients that a backend computed; ``precision`` is the dtype of autocast, if any."""
    yield from outcome_rows(backend, "output", eager.outputs, compiled.outputs, exact.outputs, precision)
    yield from outcome_rows(backend, "gradient", eager.gradients, compiled.gradients, exact.gradients, precision)


def _precision(model: nn.Module, call: Call) -> torch.dtype | None:
    """The coarsest dtype of autocast, parameters, buffers and arguments."""
    arguments = [leaf for leaf in tree_leaves((tuple(call.args), dict(call.kwargs))) if isinstance(leaf, torch.Tensor)]
    dtypes = [tensor.dtype for tensor in (*model.parameters(), *model.buffers(), *arguments)]
    return coarsest([*dtypes, call.autocast] if call.autocast else dtypes)


def _in_float64(model: nn.Module, call: Call) -> Outcome:
    """The model with parameters, buffers and arguments in float64 and no autocast; nothing where it does not run so,

    because it casts to a narrower dtype on the way, say, or a check of it holds by rounding alone.
    """
    state = {name: _double(tensor) for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    args, kwargs = tree_map(_double, (tuple(call.args), dict(call.kwargs)))
    parameters = {name: state[name] for name, _ in model.named_parameters()}

    def function(*args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(model, state, args, kwargs)

    try:
        return run_module(function, parameters, Call(args, kwargs, call.backward, call.loss))
    except Exception:  # noqa: BLE001  (whatever the model raises that did run in its own dtypes)
        return Outcome({})


def _double(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def _defaults(provider: str) -> dict[str, Any]:
    """The options of a backend that runs once."""
    return {"providers": [provider] if provider == "cpu" else [provider, "cpu"], "session_options": once()}
