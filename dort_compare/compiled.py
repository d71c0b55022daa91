"""A compiled model, and the runs of its graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed, InternalTorchDynamoError
from torch._dynamo.utils import counters

from dort_compare.backends import CompiledGraph
from dort_compare.backends.untraceable import is_torchs_own
from dort_compare.errors import DortError, NothingToDifferentiateError, OtherBackendError, UsageError, one_line
from dort_compare.trace import GraphRun, Outcome, run_module
from dort_compare.trace.call import Call

_BREAKS, _FAILURES = "graph_break", "unimplemented"
"""Where torch counts why graphs end, and what it could not compile."""
_READS_A_NUMBER = "aten._local_scalar_dense"
"""What torch names where a graph, such as of the gradient of ``while_loop``, makes a number of a tensor."""


class Compiled:
    """``torch.compile(model, backend=backend)``, freshly; errors of ours come without torch's wrapping.

    Recurrent layers, which torch leaves uncompiled by default, are compiled too.
    """

    def __init__(self, model: nn.Module, backend: Any, dynamic: bool | None = None) -> None:
        torch._dynamo.reset()
        self._parameters = dict(model.named_parameters())
        self._buffers = model.named_buffers
        self._compiled = torch.compile(model, backend=backend, dynamic=dynamic)
        self._before = {kind: Counter(counters[kind]) for kind in (_BREAKS, _FAILURES)}

    @property
    def refusal(self) -> str:
        """Why torch first left a part of the model uncompiled, and its hint, in one line; "" where it left none."""
        if torch._dynamo.config.disable:
            return "torch.compile is off: unset TORCH_COMPILE_DISABLE, or torch._dynamo.config.disable"
        if any(_READS_A_NUMBER in reason for reason in self._told(_FAILURES)):
            return "it reads a number off a tensor: set torch._dynamo.config.capture_scalar_outputs = True"
        reason = next(iter(self._told(_BREAKS)), "")
        what, *more = [line.strip().rstrip(".") for line in reason.splitlines() if line.strip()] or [""]
        told = [what, *(line for line in more if line.startswith(("Explanation: ", "Hint: ")) and line[-1] != ":")]
        return f"torch says: {'. '.join(told[:3])}" if what else ""

    def _told(self, kind: str) -> Counter[str]:
        """What torch has told of one kind since this model was wrapped."""
        return Counter(counters[kind]) - self._before[kind]

    def run(self, call: Call) -> Outcome:
        """The outcome of a call, which eager torch has run before; the first one compiles."""
        try:
            with torch._dynamo.config.patch(allow_rnn=True, use_numpy_random_stream=True):
                return run_module(self._compiled, self._parameters, call, self._buffers)
        except NothingToDifferentiateError:
            raise UsageError(
                "eager has gradients, the compiled model has none: it returns what requires no grad there; if it takes "
                "a gradient itself by torch.autograd.grad(..., create_graph=True), take that by torch.func.grad"
            ) from None
        except BackendCompilerFailed as problem:
            if isinstance(problem.inner_exception, DortError):
                raise problem.inner_exception from None
            if is_torchs_own(problem.inner_exception):
                raise UsageError(f"torch cannot compile the model: {one_line(problem.inner_exception)}") from problem
            raise
        except InternalTorchDynamoError as problem:
            raise UsageError(f"torch cannot compile the model: {str(problem).strip().splitlines()[0]}") from problem


def run_compiled(model: nn.Module, call: Call, backend: Any, dynamic: bool | None = None) -> Outcome:
    """The outcome of one call of the model, compiled with ``backend``."""
    return Compiled(model, backend, dynamic).run(call)


def run_other(name: str, backend: Any, model: nn.Module, call: Call, dynamic: bool | None) -> Outcome:
    """The outcome with a backend of somebody else's, of a model that runs in eager; inductor draws eager's numbers.

    Raises OtherBackendError where the backend fails.
    """
    import torch._inductor.config as inductor  # noqa: PLC0415  (few ask for another backend)

    try:
        with inductor.patch(fallback_random=True):
            return run_compiled(model, call, backend, dynamic)
    except DortError:
        raise
    except Exception as problem:
        raise OtherBackendError(f"the backend {name} failed: {one_line(problem)}") from problem


def graph_runs(graph: CompiledGraph, given: Mapping[str, torch.Tensor] | None = None) -> Iterator[GraphRun]:
    """The recorded runs of a compiled graph, with the names of those of its inputs that are ``given``.

    Raises StaleRecordError at one of which an input that is kept by reference has been written since.
    """
    names = {id(tensor): name for name, tensor in reversed([*(given or {}).items()])}
    onnx_model = graph.onnx_model
    for position, run in enumerate(graph.runs):
        yield GraphRun(
            phase=graph.phase,
            index=graph.index,
            graph_module=graph.graph_module,
            onnx_model=onnx_model,
            inputs=graph.named_inputs(position),
            providers=graph.program.providers,
            compile_id=graph.compile_id,
            input_names={name: names[id(source)] for name, source in run.sources.items() if id(source) in names},
            is_piece=graph.is_piece,
            number=position + 1,
            whole=graph.traced.graph_module,
        )


def graph_run(graph: CompiledGraph, given: Mapping[str, torch.Tensor] | None = None) -> GraphRun:
    """The first of ``graph_runs``."""
    return next(graph_runs(graph, given))
