"""The code that fx makes of a graph, as a function."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch import fx
from torch.fx.graph import CodeGen


def made_code(graph_module: fx.GraphModule, codegen: CodeGen | None = None) -> Callable[..., Any]:
    """Runs the graph by code that is made of it; by its own ``codegen`` where one is given.

    A power becomes a call: fx writes ``-1 ** n`` for that of -1, which Python takes for -(1 ** n).
    """
    for node in graph_module.graph.find_nodes(op="call_function", target=operator.pow):
        node.target = pow
    if codegen is not None:
        graph_module.graph.set_codegen(codegen)
    graph_module.recompile()
    return graph_module.forward
