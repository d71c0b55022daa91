"""The reference: an FX graph on torch's own kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from dort_compare.checks import check_of
from dort_compare.provenance import described
from dort_compare.unset import UNSET

aten = torch.ops.aten


def reproducible(target: Any) -> Any:
    """``target``, but for a view a reshape, for a kernel may lay out its result otherwise than torch traced, and zeros
    for what torch leaves as it was in memory, as in its lowering, or for zeros without memory."""
    if target in UNSET:
        return lambda *args, **kwargs: target(*args, **kwargs).zero_()
    if target is aten._efficientzerotensor.default:
        return aten.zeros.default
    return aten.reshape.default if target is aten.view.default else target


class Interpreter(fx.Interpreter):
    """Runs a graph on torch's kernels, whatever layout they give their results.

    What they raise has a note that says at which node.
    """

    def run_node(self, n: fx.Node) -> Any:
        try:
            return super().run_node(n)
        except Exception as problem:
            problem.add_note(f"at {described(n)}")
            raise

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(reproducible(target), args, kwargs)


@torch.no_grad()
def eager_values(graph_module: fx.GraphModule, inputs: Sequence[Any]) -> Iterator[tuple[fx.Node, torch.Tensor]]:
    """Runs the graph and yields (node, tensor) for every computed tensor, each freed after its last reader has run.

    The checks of the graph are left out: the run that was recorded has passed them.
    """
    interpreter = Interpreter(graph_module)
    interpreter.args_iter = iter(inputs)
    reads = last_reads(interpreter.graph)
    for node in interpreter.graph.nodes:
        if node.op == "output":
            return
        value = interpreter.env[node] = None if check_of(node) else interpreter.run_node(node)
        if isinstance(value, torch.Tensor) and node.op == "call_function":
            yield node, value
        del value
        for read in reads[node]:
            del interpreter.env[read]


def last_reads(graph: fx.Graph, *, keeps_outputs: bool = False) -> dict[fx.Node, list[fx.Node]]:
    """By each node, those whose values no call reads once it has run.

    That the graph returns a value counts as reading it where ``keeps_outputs``.
    """
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        last[node] = node
        if node.op != "output" or keeps_outputs:
            last.update(dict.fromkeys(node.all_input_nodes, node))
    found: dict[fx.Node, list[fx.Node]] = {node: [] for node in last}
    for value, reader in last.items():
        found[reader].append(value)
    return found
