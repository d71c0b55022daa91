"""Outputs that are views of inputs: they share the input's memory, so torch makes them, not ONNX Runtime."""

from __future__ import annotations

import operator

import torch
from torch import fx

from dort_compare.scalars import is_number


def view_of_inputs(node: fx.Node) -> fx.GraphModule | None:
    """A module that makes the value of ``node`` from all inputs of its graph, in order; None if it is no view of any.

    AOTAutograd reads strides and offset off such an output, and eager's output changes with the input.
    """
    needed = _ancestors(node)
    if node.op == "placeholder" or not all(is_view(each) for each in needed):
        return None
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for each in node.graph.nodes:
        if each.op == "placeholder" or each in needed:
            copies[each] = graph.node_copy(each, copies.__getitem__)
    graph.output(copies[node])
    return fx.GraphModule(torch.nn.Module(), graph)


def _ancestors(node: fx.Node) -> set[fx.Node]:
    found, waiting = {node}, [node]
    while waiting:
        new = set(waiting.pop().all_input_nodes) - found
        found |= new
        waiting.extend(new)
    return found


def is_view(node: fx.Node) -> bool:
    """Whether a node is an input, a view, or arithmetic on numbers."""
    if node.op == "placeholder" or node.target is operator.getitem:
        return True
    if is_number(node.meta.get("val")):
        return node.op == "call_function"
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view
