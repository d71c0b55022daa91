"""``compare(...)``: the one call that strings the rooms together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

from dort_compare.align import values_of_fx_nodes
from dort_compare.backends import CompiledGraph, DebugBackend
from dort_compare.errors import DortError, UsageError
from dort_compare.measure.outcome import OutcomeRow, outcome_rows
from dort_compare.measure.rows import Candidate, Row, measured_rows
from dort_compare.measure.verdict import judge
from dort_compare.report import Report
from dort_compare.trace import Outcome, eager_values, float64_values, onnx_values, run_module
from dort_compare.trace.modules import Call, Loss


@dataclass(frozen=True)
class Comparison:
    """A report with what it was made from: both executions, the float64 one where there was one, the graphs."""

    report: Report
    eager: Outcome
    compiled: Outcome
    exact: Outcome
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
    "cpu" or "cuda" (the model and its arguments must be there). ``dump`` names a new folder for graphs, models, inputs.
    ``dynamic`` goes to ``torch.compile``, everything else (``exporter``, ``target_opset``, ...) to DebugBackend.

    Raises DortError, or one of its subclasses, for what cannot be compared; divergence is not an error.
    """
    if not isinstance(args, (tuple, list)):
        raise UsageError(f"args is a {type(args).__name__}; give the model's arguments as a tuple, such as (x,)")
    call = Call(tuple(args), dict(kwargs or {}), backward, loss, autocast)
    backend = DebugBackend(**{"providers": _with_cpu(provider), "dump": dump, **options})
    return compare_with(model, call, backend, dynamic).report


def compare_with(model: nn.Module, call: Call, backend: DebugBackend, dynamic: bool | None = None) -> Comparison:
    """Like ``compare``, for a backend of the caller's; returns the executions beside the report."""
    if backend.options.max_runs < 1:
        raise UsageError("max_runs is 0: without a recorded run there is nothing to compare")
    parameters = dict(model.named_parameters())
    eager = run_module(model, parameters, call)
    compiled = run_compiled(model, call, backend, dynamic)
    exact = _in_float64(model, call) if _is_half(call, eager) else Outcome({})
    outcome = tuple(outcome_of("debug", eager, compiled, exact, call.autocast))
    if not backend.graphs:
        raise UsageError("torch.compile made no graph of the model: there is nothing to compare")
    rows = tuple(row for graph in backend.graphs for row in graph_rows(graph))
    verdict, divergence = judge(rows, outcome)
    return Comparison(Report(verdict, divergence, rows, outcome), eager, compiled, exact, backend.graphs)


def run_compiled(model: nn.Module, call: Call, backend: Any, dynamic: bool | None = None) -> Outcome:
    """The outcome of ``torch.compile(model, backend=backend)``; errors of ours come without torch's wrapping."""
    torch._dynamo.reset()
    try:
        return run_module(torch.compile(model, backend=backend, dynamic=dynamic), dict(model.named_parameters()), call)
    except BackendCompilerFailed as problem:
        if isinstance(problem.inner_exception, DortError):
            raise problem.inner_exception from None
        raise


def graph_rows(graph: CompiledGraph) -> Iterator[Row]:
    """The values of the first recorded run of a graph: torch's kernels and float64 against ONNX Runtime."""
    if not graph.runs:
        return iter(())
    inputs = graph.runs[0].inputs
    return measured_rows(
        graph.phase,
        graph.index,
        eager_values(graph.graph_module, inputs),
        float64_values(graph.graph_module, inputs),
        _candidates(graph),
    )


def _candidates(graph: CompiledGraph) -> dict[str, Candidate | str]:
    model = graph.onnx_model
    tensors = dict(onnx_values(model, graph.named_inputs(), graph.program.providers))
    return {
        fx_node: value.opaque
        or Candidate(value.name, tensors[value.name], value.nodes, value.op_types, value.computed_in)
        for fx_node, value in values_of_fx_nodes(model).items()
    }


def outcome_of(
    backend: str, eager: Outcome, compiled: Outcome, exact: Outcome, precision: torch.dtype | None
) -> Iterator[OutcomeRow]:
    """Rows for the outputs and gradients that a backend computed; ``precision`` is the dtype of autocast, if any."""
    yield from outcome_rows(backend, "output", eager.outputs, compiled.outputs, exact.outputs, precision)
    yield from outcome_rows(backend, "gradient", eager.gradients, compiled.gradients, exact.gradients, precision)


def _is_half(call: Call, eager: Outcome) -> bool:
    half = (torch.float16, torch.bfloat16)
    return call.autocast in half or any(tensor.dtype in half for tensor in eager.outputs.values())


def _in_float64(model: nn.Module, call: Call) -> Outcome:
    """The model with parameters, buffers and arguments in float64 and no autocast."""
    state = {name: _double(tensor) for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    args, kwargs = torch.utils._pytree.tree_map(_double, (tuple(call.args), dict(call.kwargs)))
    parameters = {name: state[name] for name, _ in model.named_parameters()}

    def function(*args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(model, state, args, kwargs)

    return run_module(function, parameters, Call(args, kwargs, call.backward, call.loss))


def _double(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def _with_cpu(provider: str) -> list[str]:
    return [provider] if provider == "cpu" else [provider, "cpu"]
