"""A graph on torch's kernels in the place of its program: as AOTAutograd calls it, every value shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from dort_compare.trace.eager import Interpreter

See = Callable[[fx.Node, torch.Tensor], None]


class Watched(Interpreter):
    """Shows every tensor, those that go in included, to ``see``."""

    def __init__(self, graph_module: fx.GraphModule, see: See) -> None:
        super().__init__(graph_module)
        self.extra_traceback = False
        self.see = see

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        self._show(n, value)
        return value

    @torch.no_grad()
    def run_on(self, arguments: list[Any]) -> Any:
        """The outputs of the graph; ``arguments`` is emptied, and each value freed after its last reader."""
        self._show_inputs(arguments)
        return self.boxed_run(arguments)

    def _show_inputs(self, arguments: list[Any]) -> None:
        for node, argument in zip(self.graph.find_nodes(op="placeholder"), arguments, strict=True):
            self._show(node, argument)

    def _show(self, node: fx.Node, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self.see(node, value)


def run_watched(graph_module: fx.GraphModule, arguments: list[Any], see: See) -> Any:
    """The outputs of a graph on torch's kernels."""
    return Watched(graph_module, see).run_on(arguments)
