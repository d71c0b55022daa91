"""The reference: an FX graph on torch's own kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten


class Interpreter(fx.Interpreter):
    """Runs a graph on torch's kernels, views as reshapes: a kernel may lay out its result otherwise than traced."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(aten.reshape.default if target is aten.view.default else target, args, kwargs)


def eager_values(graph_module: fx.GraphModule, inputs: Sequence[Any]) -> Iterator[tuple[fx.Node, torch.Tensor]]:
    """Runs the graph and yields (node, tensor) for every computed tensor, each freed after its last reader has run."""
    return interpreted(Interpreter(graph_module), inputs)


@torch.no_grad()
def interpreted(interpreter: fx.Interpreter, inputs: Sequence[Any]) -> Iterator[tuple[fx.Node, torch.Tensor]]:
    """Runs the graph of ``interpreter`` node by node."""
    interpreter.args_iter = iter(inputs)
    for node in interpreter.graph.nodes:
        if node.op == "output":
            return
        value = interpreter.env[node] = interpreter.run_node(node)
        if isinstance(value, torch.Tensor) and node.op == "call_function":
            yield node, value
        del value
        for read in interpreter.user_to_last_uses.get(node, []):
            del interpreter.env[read]
        if not node.users:
            del interpreter.env[node]
