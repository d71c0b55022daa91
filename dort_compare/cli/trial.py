"""One comparison of a model that a command line names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dort_compare.api import compare
from dort_compare.cli.called_module import called_module
from dort_compare.cli.frames import theirs
from dort_compare.cli.named import Named
from dort_compare.errors import DortError, RuntimeUnavailableError
from dort_compare.report import Report
from dort_compare.trace import run_module
from dort_compare.trace.call import Call


def trial(
    factory: str,
    inputs: Sequence[str],
    *,
    backward: bool,
    loss: str | None,
    mixed: str | None,
    provider: str,
    seed: int,
    compile_backends: Sequence[str],
    **given: Any,
) -> Report:
    """Makes the model and its inputs and compares it; everything else goes to ``compare``.

    Raises UserCodeError for what the caller's code raises, the model in plain eager too.
    """
    if provider == "cuda" and not torch.cuda.is_available():
        raise RuntimeUnavailableError(
            "--provider cuda needs a GPU and torch.cuda.is_available() is False; leave it out"
        )
    differentiated = Named.of(loss).function() if loss else None
    backward = backward or differentiated is not None
    autocast = getattr(torch, mixed) if mixed else None
    others = [Named.of(name).function() if ":" in name else name for name in compile_backends]
    torch.manual_seed(seed)
    called = called_module(Named.of(factory).made(), inputs, seed=seed, backward=backward, what=factory)
    called.to(provider)
    call = Call(called.args, called.kwargs, backward, differentiated, autocast)
    try:
        return compare(
            called.module,
            called.args,
            called.kwargs,
            backward=backward,
            loss=differentiated,
            autocast=autocast,
            provider=provider,
            compile_backends=others,
            **given,
        )
    except DortError:
        raise
    except Exception as problem:  # noqa: BLE001  (whose fault it is, plain eager tells)
        failure = problem
    _blame(f"the model of {factory}" + (f", or {loss}," if loss else ""), called.module, call)
    raise failure


def _blame(what: str, module: nn.Module, call: Call) -> None:
    """Raises UserCodeError, which names ``what``, where the model raises in plain eager torch as well."""
    with theirs(what):
        run_module(module, dict(module.named_parameters()), call)
