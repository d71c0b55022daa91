"""What is told of the compilation of one graph."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import onnx_ir as ir
from torch import fx

from dort_compare.log.casts import inserted_casts
from dort_compare.log.lines import Fate, graph_lines
from dort_compare.log.loggers import MODULES, OPERATORS, STAGES, loggers, tell
from dort_compare.log.values import milliseconds, size_of
from dort_compare.provenance import Phase
from dort_compare.stages import Stages


class Compilation:
    """One graph of AOTAutograd while it is compiled.

    Whoever compiles it runs its steps within ``stages``, adds the models that run to ``models`` and the nodes that do
    not, with the reason, to ``in_torch``.
    """

    def __init__(self, graph_module: fx.GraphModule, phase: Phase, compile_id: str | None) -> None:
        self.graph_module = graph_module
        self.title = f"{phase} graph {compile_id}" if compile_id else f"{phase} graph"
        self.stages = Stages()
        self.models: list[ir.Model] = []
        self.in_torch: Mapping[str, str] = {}
        self._begun = time.perf_counter()

    def beginning(self) -> str:
        """What is compiled."""
        return f"{self.title}: {size_of(self.graph_module.graph)}"

    def end(self, problem: BaseException | None = None) -> str:
        """What came of it, and how long each stage took."""
        took = [f"{name} {milliseconds(seconds)}" for name, seconds in self.stages.seconds.items()]
        took.append(f"{milliseconds(time.perf_counter() - self._begun)} in all")
        return f"{self.title}: {self._outcome(problem)}; {', '.join(took)}"

    def _outcome(self, problem: BaseException | None) -> str:
        if problem is not None:
            return f"{type(problem).__name__}: {' '.join(str(problem).split())}"
        made = f"{sum(len(model.graph) for model in self.models)} ONNX nodes"
        if not self.in_torch:
            return made
        return f"{made} in {len(self.models)} pieces, {len(self.in_torch)} operators in eager torch"

    def tree(self, *, operators: bool) -> str:
        """The modules of the graph, and with ``operators`` all that it computes."""
        fate = Fate(inserted_casts(self.models), self.in_torch)
        return "\n".join(graph_lines(self.title, self.graph_module, fate, operators=operators))


@contextmanager
def compiling(
    verbose: int, graph_module: fx.GraphModule, phase: Phase, compile_id: str | None
) -> Iterator[Compilation]:
    """Tells, where a logger listens, that a graph is compiled, what is in it and how long it took."""
    told = Compilation(graph_module, phase, compile_id)
    listeners = loggers(verbose)
    tell(listeners, [(STAGES, told.beginning)])
    problem: BaseException | None = None
    try:
        yield told
    except BaseException as raised:
        problem = raised
        raise
    finally:
        tell(listeners, [(OPERATORS, lambda: told.tree(operators=True)), (MODULES, lambda: told.tree(operators=False))])
        tell(listeners, [(STAGES, lambda: told.end(problem))])
