"""What FX nodes and graphs lead to: what is read, returned, held within, whose result a node is, and of which kind."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx


def attribute_of(node: fx.Node) -> Any:
    """What a ``get_attr`` reads: a tensor, or a graph."""
    return operator.attrgetter(str(node.target))(node.graph.owning_module)


def returned_by(graph: fx.Graph) -> list[Any]:
    """What a graph returns, in order: FX nodes and constants."""
    returned = graph.output_node().args[0]
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def graph_of(node: fx.Node) -> fx.GraphModule | None:
    """The graph of a branch or loop that a node stands for; None of any other node."""
    held = attribute_of(node) if node.op == "get_attr" else None
    return held if isinstance(held, fx.GraphModule) else None


def graphs_within(graph_module: fx.GraphModule) -> list[fx.GraphModule]:
    """A graph, and those of branches, loops and the like in it."""
    return [module for module in graph_module.modules() if isinstance(module, fx.GraphModule)]


def call_of(node: fx.Node) -> fx.Node:
    """The call whose result ``node`` is: itself, but for a ``getitem`` what it reads from."""
    while node.target is operator.getitem:
        node = node.all_input_nodes[0]
    return node


def shown_call(node: fx.Node) -> fx.Node:
    """The call whose numbers ``node`` shows: ``call_of``, but where it shows the parts of a complex result, which no
    ONNX value stands for, what has computed that."""
    is_of_call = node.target is torch.ops.aten.view_as_real.default and node.all_input_nodes[0].op == "call_function"
    return call_of(node.all_input_nodes[0] if is_of_call else node)


def reads_result(node: fx.Node, position: int) -> bool:
    """Whether a graph reads the result at ``position`` of ``node``, a call that returns several."""
    return any(user.target is operator.getitem and user.args[1] == position for user in node.users)


def is_pointwise(target: object) -> bool:
    """Whether a call of ``target`` computes each element of those in the same place of its operands, as torch tells."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags
