"""The calls of modules that a graph holds, and which of its values may be what they return."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import fx

from dort_compare.descriptors import by_tangent, saved_values
from dort_compare.views import history

Level = tuple[str, str]
"""Of a module stack: torch's key of a call ("<id of the module>", from the second call on "...@<n>"), and its path."""


@dataclass
class TracedCall:
    """A call of a module that was traced into a graph.

    ``module`` is the ``id`` of the module object. ``entries`` are the tensors from before the call that are read in it,
    ``exits`` those computed in it that an operation after it, or the caller, reads, in order. ``depth`` is 0 for a call
    that no other traced call makes.
    """

    module: int
    depth: int
    entries: dict[fx.Node, None] = field(default_factory=dict)
    exits: list[fx.Node] = field(default_factory=list)


def traced_calls(graph: fx.Graph) -> list[TracedCall]:
    """The calls that a forward or inference graph holds, in the order in which they begin."""
    found: dict[tuple[Level, ...], TracedCall] = {}
    saved = saved_values(graph)
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        stack = _stack(node)
        for depth in range(len(stack)):
            call = found.setdefault(stack[: depth + 1], TracedCall(_module_id(stack[depth]), depth))
            before = [each for each in _operands(node) if _stack(each)[: depth + 1] != stack[: depth + 1]]
            call.entries.update(dict.fromkeys(before))
            outside = {user for user in node.users if _stack(user)[: depth + 1] != stack[: depth + 1]}
            is_read = any(node not in saved if user.op == "output" else not is_backward(user) for user in outside)
            if is_read and isinstance(node.meta.get("val"), torch.Tensor):
                call.exits.append(node)
    return list(found.values())


def modules_of(node: fx.Node) -> tuple[int, ...]:
    """The ``id`` of every module that a node, or its forward node, stems from, the innermost last."""
    return tuple(_module_id(level) for level in _stack(node) or _stack(node, "fwd_nn_module_stack"))


def incoming_gradients(graph: fx.Graph) -> Mapping[int, list[fx.Node]]:
    """By sequence number of a forward operation: what its backward operations read that others of them computed.

    One of these values is the gradient of the operation's result.
    """
    found: dict[int, dict[fx.Node, None]] = defaultdict(dict)
    for node in graph.nodes:
        number = node.meta.get("seq_nr")
        if number is None or not is_backward(node) or node.meta.get("is_gradient_acc"):
            continue
        for operand in _operands(node):
            is_own = operand.meta.get("seq_nr") == number and not operand.meta.get("is_gradient_acc")
            if _is_gradient(operand) and not is_own:
                found[number][operand] = None
    return {number: list(nodes) for number, nodes in found.items()}


def regenerated(forward: fx.Graph, backward: fx.Graph) -> set[fx.Node]:
    """Views on the way to an output that torch makes anew outside of the graphs, of an input or of what it is given the
    gradient by instead: autograd goes back there, and the backward graph has the gradients by them but in part."""
    given, others = by_tangent(forward, backward)
    found: set[fx.Node] = set()
    for output in others:
        views, sources = history(output)
        if any(source in given or source.op == "placeholder" for source in sources):
            found |= views
    return found


def passed_on(node: fx.Node, incoming: Mapping[int, list[fx.Node]]) -> list[fx.Node]:
    """What ``incoming`` has for the operations before one for which it has nothing: one, such as a sum, that passes its
    gradient on unchanged. It is the gradient of ``node`` too unless their results have other readers."""
    found: dict[fx.Node, None] = {}
    seen: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        gradients = incoming.get(each.meta.get("seq_nr", -1), [])
        found.update(dict.fromkeys(gradients))
        if not gradients and each not in seen:
            seen.add(each)
            waiting.extend(_operands(each))
    return list(found)


def _operands(node: fx.Node) -> Iterator[fx.Node]:
    for operand in node.all_input_nodes:
        if isinstance(operand.meta.get("val"), torch.Tensor):
            yield operand


def _is_gradient(node: fx.Node) -> bool:
    return node.name.startswith("tangents") if node.op == "placeholder" else is_backward(node)


def is_backward(node: fx.Node) -> bool:
    """Whether autograd made the node, and not the forward pass that a backward graph repeats in part."""
    return node.op == "call_function" and node.meta.get("partitioner_tag") == "is_backward"


def _stack(node: fx.Node, key: str = "nn_module_stack") -> tuple[Level, ...]:
    return tuple((str(call), str(path)) for call, (path, _) in (node.meta.get(key) or {}).items())


def _module_id(level: Level) -> int:
    """0, which no module has, for a name: a program that torch.export has made brings those of its own modules."""
    identity = level[0].partition("@")[0]
    return int(identity) if identity.isdecimal() else 0
