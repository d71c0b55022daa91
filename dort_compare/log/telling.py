"""Tells the compilation of one graph to whoever listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import fx

from dort_compare.errors import one_line
from dort_compare.log.artifact import leave_artifact
from dort_compare.log.compilation import Compilation
from dort_compare.log.loggers import MODULES, OPERATORS, STAGES, loggers, tell
from dort_compare.provenance import Phase


@contextmanager
def compiling(
    verbose: int, graph_module: fx.GraphModule, phase: Phase, compile_id: str | None
) -> Iterator[Compilation]:
    """Tells, where a logger listens, that a graph is compiled, what is in it and how long it took.

    Where torch writes a structured trace, an artifact holds the same.
    """
    told = Compilation(graph_module, phase, compile_id)
    listeners = loggers(verbose)
    tell(listeners, [(STAGES, told.beginning)])
    try:
        yield told
    except BaseException as problem:
        told.problem = one_line(problem)  # not itself: it holds this frame
        raise
    finally:
        tell(listeners, [(OPERATORS, lambda: told.tree(operators=True)), (MODULES, lambda: told.tree(operators=False))])
        tell(listeners, [(STAGES, told.end)])
        leave_artifact(told)
