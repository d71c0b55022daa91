"""The reference and the referee of one graph, side by side: every node on torch's kernels, then in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from dort_compare.checks import check_of
from dort_compare.trace.eager import Interpreter, last_reads
from dort_compare.trace.float64 import Float64


@dataclass(frozen=True)
class Step:
    """A node with what it computed: a tensor or number in its own dtype, and the same in float64.

    ``operands`` holds, by FX name, what the node read in its own dtype; ``getitem`` reads what the call it belongs to
    reads.
    """

    node: fx.Node
    value: Any
    exact: Any
    operands: Mapping[str, Any]


@torch.no_grad()
def lockstep(graph_module: fx.GraphModule, inputs: Sequence[Any]) -> Iterator[Step]:
    """Runs the graph both ways and yields a step for every tensor or number that a call computes, in order.

    A value is freed after its last reader. The checks of the graph are left out: the run that was recorded has passed.
    """
    eager, exact = Interpreter(graph_module), Float64(graph_module)
    eager.args_iter, exact.args_iter = iter(inputs), iter(inputs)
    read_before: dict[fx.Node, dict[str, Any]] = {}
    reads = last_reads(graph_module.graph)
    for node in graph_module.graph.nodes:
        if node.op == "output":
            return
        operands = {operand.name: eager.env[operand] for operand in node.all_input_nodes}
        for operand in node.all_input_nodes:
            operands |= read_before.get(operand, {})
        if check_of(node):
            eager.env[node] = exact.env[node] = None
        else:
            eager.env[node] = eager.run_node(node)
            exact.env[node] = exact.run_beside(node, eager.env[node])
        step = Step(node, eager.env[node], exact.env[node], operands)
        if isinstance(step.value, (tuple, list)):
            read_before[node] = operands
        del operands
        for read in reads[node]:
            del eager.env[read], exact.env[read]
            read_before.pop(read, None)
        if node.op == "call_function" and isinstance(step.value, (torch.Tensor, int, float)):
            yield step
        del step
