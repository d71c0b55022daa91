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
        if isinstance(value, torch.Tensor):
            self.see(n, value)
        return value


def run_graph(graph_module: fx.GraphModule, arguments: list[Any], see: See) -> Any:
    """The outputs of a graph; ``arguments`` is emptied, and each value freed after its last reader."""
    return run_boxed(Watched(graph_module, see), arguments)


@torch.no_grad()
def run_boxed(interpreter: fx.Interpreter, arguments: list[Any]) -> Any:
    """Runs the graph of ``interpreter`` on a list of arguments, which it empties."""
    return interpreter.boxed_run(arguments)
