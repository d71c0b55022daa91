"""The module that is compiled is the root of all paths, whatever its ``forward`` calls what it is called on."""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any

from torch import fx, nn
from torch._dynamo.resume_execution import ContinueExecutionCache
from torch._dynamo.symbolic_convert import InstructionTranslatorBase, tls

from dort_compare.node_meta import MODULES
from dort_compare.provenance import ROOT


def name_root(graph_module: fx.GraphModule) -> None:
    """Has the paths of modules in a graph that dynamo is tracing begin as where the first parameter is ``self``.

    A decorator's ``def inner(*args, **kwargs)`` calls it ``args[0]``.
    """
    tracer = getattr(tls, "current_tx", None)
    name = None if tracer is None else _name_of_root(tracer)
    if name is None or name == ROOT:
        return
    for graph in (each.graph for each in graph_module.modules() if isinstance(each, fx.GraphModule)):
        for node in graph.nodes:
            if stack := node.meta.get(MODULES):
                node.meta[MODULES] = {key: (_renamed(path, name), kind) for key, (path, kind) in stack.items()}


def _renamed(path: str, name: str) -> str:
    is_within = path.startswith(name) and path[len(name) :][:1] in ("", ".", "[")
    return ROOT + path[len(name) :] if is_within else path


def _name_of_root(tracer: InstructionTranslatorBase) -> str | None:
    """Dynamo's name of the module whose ``forward`` is traced; None where something else is."""
    code = _written(tracer.f_code)
    if code.co_argcount:
        name = code.co_varnames[0]
        first, source = tracer.f_locals.get(name), f"L['{name}']"
    elif code.co_flags & inspect.CO_VARARGS:
        name = code.co_varnames[code.co_kwonlyargcount]
        first, source = next(iter(tracer.f_locals.get(name, ())), None), f"L['{name}'][0]"
    else:
        return None
    return source if isinstance(first, nn.Module) and code in _codes(first.forward) else None


def _codes(forward: Any) -> list[CodeType | None]:
    """The code of ``forward``, and of what its decorators wrap."""
    return [getattr(each, "__code__", None) for each in (forward, inspect.unwrap(forward))]


def _written(code: CodeType) -> CodeType:
    """The code that dynamo has made another of to go on with behind a graph break; itself where it is none such."""
    resumed = ContinueExecutionCache.generated_code_metadata.get(code)
    return code if resumed is None else resumed.code
