"""The reference: an FX graph on torch's own kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from dort_compare.checks import check_of

aten = torch.ops.aten


def in_any_layout(target: Any) -> Any:
    """``target``, but for a view a reshape: a kernel may lay out its result otherwise than torch traced."""
    return aten.reshape.default if target is aten.view.default else target


class Interpreter(fx.Interpreter):
    """Runs a graph on torch's kernels, whatever layout they give their results."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(in_any_layout(target), args, kwargs)


def eager_values(
    graph_module: fx.GraphModule, inputs: Sequence[Any], seen: dict[fx.Node, Any] | None = None
) -> Iterator[tuple[fx.Node, torch.Tensor]]:
    """Runs the graph and yields (node, tensor) for every computed tensor, each freed after its last reader has run.

    What every node computed goes to ``seen`` too, for whoever runs the same graph one step behind and takes it out.
    """
    return interpreted(Interpreter(graph_module) if seen is None else _Seen(graph_module, seen), inputs)


class _Seen(Interpreter):
    def __init__(self, graph_module: fx.GraphModule, seen: dict[fx.Node, Any]) -> None:
        super().__init__(graph_module)
        self.seen = seen

    def run_node(self, n: fx.Node) -> Any:
        value = self.seen[n] = super().run_node(n)
        return value


@torch.no_grad()
def interpreted(interpreter: fx.Interpreter, inputs: Sequence[Any]) -> Iterator[tuple[fx.Node, torch.Tensor]]:
    """Runs the graph of ``interpreter`` node by node, without its checks: the run that was recorded has passed them."""
    interpreter.args_iter = iter(inputs)
    for node in interpreter.graph.nodes:
        if node.op == "output":
            return
        value = interpreter.env[node] = None if check_of(node) else interpreter.run_node(node)
        if isinstance(value, torch.Tensor) and node.op == "call_function":
            yield node, value
        del value
        for read in interpreter.user_to_last_uses.get(node, []):
            del interpreter.env[read]
        if not node.users:
            del interpreter.env[node]


See = Callable[[fx.Node, torch.Tensor], None]


class Watched(Interpreter):
    """Shows every tensor, those that go in included, to ``see``."""

    def __init__(self, graph_module: fx.GraphModule, see: See) -> None:
        super().__init__(graph_module)
        self.see = see

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            self.see(n, value)
        return value


def run_graph(graph_module: fx.GraphModule, arguments: list[Any], see: See) -> Any:
    """The outputs of a graph on torch's kernels; ``arguments`` is emptied, and each value freed after its last reader."""
    return boxed(Watched(graph_module, see), arguments)


@torch.no_grad()
def boxed(interpreter: fx.Interpreter, arguments: list[Any]) -> Any:
    """Runs the graph of ``interpreter`` as AOTAutograd calls it."""
    interpreter.extra_traceback = False
    return interpreter.boxed_run(arguments)
