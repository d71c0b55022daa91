"""``compare(...)``: the one call that strings the rooms together."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dort_compare.backends import DebugBackend
from dort_compare.backends.options import Options
from dort_compare.comparison import Effort, compare_with
from dort_compare.dump import staged
from dort_compare.errors import UsageError, nearest
from dort_compare.report import Report
from dort_compare.runtime.providers import by_itself, once, with_cpu
from dort_compare.trace.call import Call, Loss
from dort_compare.trace.four_executions import MEMORY

MAX_RUNS = 32
"""Of each graph so many runs are compared: one that a loop, or each of several layers, runs has more than one."""


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
    memory: int = MEMORY,
    repeats: int = 1,
    optimized: bool = False,
    suggest_fp32: bool | float = False,
    compile_backends: Sequence[str | Callable[..., Any]] = (),
    **options: Any,
) -> Report:
    """Compiles ``model``, runs it on ONNX Runtime and compares every value with eager torch.

    Args:
        model: what is compared, on the device that ``provider`` names.
        args: its arguments.
        kwargs: its keyword arguments.
        backward: whether the gradients of the loss are compared too.
        loss: function of what the model returns; by default the outputs' product with fixed random tensors.
        autocast: a dtype for ``torch.autocast``: torch.float16 or torch.bfloat16.
        provider: "cpu" or "cuda".
        dump: folder for graphs, models and inputs, which appears, or takes the place of an older dump, once the
            comparison is complete.
        dynamic: as ``torch.compile`` takes it.
        memory: bound of torch's values that are compared at a time, in MiB.
        repeats: how often ONNX Runtime computes each value on the same operands; one that changes is named first.
        optimized: whether the values that survive ONNX Runtime's optimizers are compared too; where a result departs
            and no operation does by itself, they are in any case.
        suggest_fp32: whether to search for the few nodes that, kept in float32, bring outputs and gradients back inside
            their floor; a number asks for that relative error of norms instead.
        compile_backends: other backends of torch.compile, such as "inductor", whose outputs and gradients are held to
            the same reference.
        options: everything else (``exporter``, ``target_opset``, ...) goes to DebugBackend. Of a graph that runs more
            than once, as in a loop around a graph break, the first ``max_runs`` are compared, by default 32; the rows
            are those of the first of them in which a value departs by itself, or else inherits.

    Raises DortError, or one of its subclasses, for what cannot be compared; divergence is not an error.
    """
    _check_model(model)
    _check_settings(provider, dump, backward, dynamic)
    _check_options(options)
    call = _call(args, kwargs, backward, loss, autocast)
    effort = Effort(memory, repeats, optimized, suggest_fp32)
    beside = _beside(compile_backends)
    with staged(Path(dump)) if dump is not None else nullcontext() as folder:
        backend = DebugBackend(**{**_defaults(provider, effort, options), "dump": folder})
        report = compare_with(model, call, backend, dynamic, effort, beside).report
        return replace(report, settings={**report.settings, "dump": str(dump)}) if dump is not None else report


def _check_model(model: object) -> None:
    """Raises UsageError for what is no module, or none of Python."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"model is a {type(model).__name__}; give a torch.nn.Module")
    if isinstance(model, torch.jit.ScriptModule):
        raise UsageError("model cannot be compiled: it is TorchScript, not Python: give the module that it was made of")


def _check_settings(provider: object, dump: object, backward: object, dynamic: object) -> None:
    """Raises UsageError for one that is of another type than ``compare`` takes."""
    if not isinstance(provider, str):
        raise UsageError(f"provider is {provider!r}; give 'cpu' or 'cuda'")
    if dump is not None and not isinstance(dump, (str, os.PathLike)):
        raise UsageError(f"dump is {dump!r}; give a folder")
    if not isinstance(backward, bool) or not (dynamic is None or isinstance(dynamic, bool)):
        told = f"backward is {backward!r} and dynamic is {dynamic!r}"
        raise UsageError(f"{told}; give True or False, or for dynamic None")


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises UsageError for options of a DebugBackend that ``compare`` sets itself, and for those of nobody."""
    if "storage" in options:
        raise UsageError("compare keeps its own graphs; give storage to DebugBackend")
    if "providers" in options:
        raise UsageError(f"compare takes one provider; give provider, not providers={options['providers']!r}")
    known = [*inspect.signature(compare).parameters, *(field.name for field in fields(Options))]
    for name in options:
        if name not in known:
            raise UsageError(f"unknown option {name!r}{nearest(name, known)}; help(dort_compare.compare) names them")


def _call(args: object, kwargs: object, backward: bool, loss: Loss | None, autocast: torch.dtype | None) -> Call:
    """How the model is called. Raises UsageError for what it cannot be called with, or differentiated by."""
    if not isinstance(args, (tuple, list)):
        raise UsageError(f"args is a {type(args).__name__}; give the model's arguments as a tuple, such as (x,)")
    named = {} if kwargs is None else kwargs
    if not (isinstance(named, Mapping) and all(isinstance(name, str) for name in named)):
        raise UsageError(f"kwargs is a {type(kwargs).__name__}; give the keyword arguments as a dict from their names")
    if loss is not None and not callable(loss):
        raise UsageError(f"loss is a {type(loss).__name__}; give a function of what the model returns")
    if loss is not None and not backward:
        raise UsageError("a loss is only used for gradients; give backward=True with it")
    if autocast not in (None, torch.float16, torch.bfloat16):
        raise UsageError(f"autocast is {autocast!r}; give torch.float16, torch.bfloat16 or None")
    return Call(tuple(args), dict(named), backward, loss, autocast)


def _beside(given: Any) -> dict[str, str | Callable[..., Any]]:
    """Backends of torch.compile by the names that the report calls them by."""
    backends = [given] if isinstance(given, str) or callable(given) else given
    if not isinstance(backends, Iterable):
        raise UsageError(f"compile_backends is {given!r}; give a list, such as ['inductor']")
    named = list(map(_named, backends))
    names = [name for name, _ in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two of compile_backends are called {twice!r}; give functions of two names")
    return dict(named)


def _named(backend: Any) -> tuple[str, str | Callable[..., Any]]:
    if callable(backend):
        what = backend if hasattr(backend, "__qualname__") else type(backend)
        return f"{what.__module__}.{what.__qualname__}", backend
    if not isinstance(backend, str):
        raise UsageError(f"compile backend {backend!r} is neither a name nor a function")
    if backend not in torch._dynamo.list_backends(exclude_tags=()):
        names = torch._dynamo.list_backends()
        raise UsageError(
            f"unknown compile backend {backend!r}{nearest(backend, names)}; choose from {', '.join(names)}"
        )
    return backend, backend


def _defaults(provider: str, effort: Effort, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a backend that runs once, under those that the caller has ``given``."""
    session = {**once(), **(by_itself() if effort.optimized else {})}
    options = {"providers": with_cpu(provider), "session_options": session, "max_runs": MAX_RUNS, **given}
    if isinstance(options["session_options"], Mapping):
        options["session_options"] = {**session, **options["session_options"]}
    return options
