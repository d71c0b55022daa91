"""What is told of the compilation of one graph."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir
from torch import fx

from dort_compare.log.casts import inserted_casts
from dort_compare.log.lines import Fate, graph_lines
from dort_compare.log.values import milliseconds, size_of
from dort_compare.provenance import Phase
from dort_compare.stages import Stages


@dataclass(frozen=True)
class Piece:
    """A model that runs: the whole graph, or a part of it. ``dumped`` is its file in the dump, if there is one."""

    model: ir.Model
    dumped: str | None


class Compilation:
    """One graph of AOTAutograd while it is compiled.

    Whoever compiles it runs its steps within ``stages``, adds what runs to ``pieces`` and gives the nodes that do not,
    with the reason, as ``in_torch``. ``problem`` says why it failed.
    """

    def __init__(self, graph_module: fx.GraphModule, phase: Phase, compile_id: str | None) -> None:
        self.graph_module = graph_module
        self.phase = phase
        self.compile_id = compile_id
        self.title = f"{phase} graph {compile_id}" if compile_id else f"{phase} graph"
        self.stages = Stages()
        self.pieces: list[Piece] = []
        self.in_torch: Mapping[str, str] = {}
        self.problem: str | None = None
        self._begun = time.perf_counter()

    def beginning(self) -> str:
        """What is compiled."""
        return f"{self.title}: {size_of(self.graph_module.graph)}"

    def end(self) -> str:
        """What came of it, and how long each stage took."""
        took = [f"{name} {milliseconds(seconds)}" for name, seconds in self.stages.seconds.items()]
        took.append(f"{milliseconds(time.perf_counter() - self._begun)} in all")
        return f"{self.title}: {self._outcome()}; {', '.join(took)}"

    def _outcome(self) -> str:
        if self.problem is not None:
            return self.problem
        made = f"{sum(len(piece.model.graph) for piece in self.pieces)} ONNX nodes"
        if self.in_torch or len(self.pieces) > 1:
            made += f" in {len(self.pieces)} pieces"
        return f"{made}, {len(self.in_torch)} operators in eager torch" if self.in_torch else made

    def tree(self, *, operators: bool) -> str:
        """The modules of the graph, and with ``operators`` all that it computes."""
        fate = Fate(inserted_casts(piece.model for piece in self.pieces), self.in_torch)
        return "\n".join(graph_lines(self.title, self.graph_module, fate, operators=operators))
