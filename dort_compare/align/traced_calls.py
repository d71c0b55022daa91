"""The calls of modules that a graph holds, and which of its values may be what they return."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from dort_compare.descriptors import by_tangent, saved_values
from dort_compare.node_meta import (
    FORWARD_MODULES,
    IS_SUM,
    MODULES,
    OPERATION,
    PASS,
    PLACE,
    STACK_TRACE,
    metas_of,
    module_of_key,
)
from dort_compare.trace.module_calls import Identity, Like
from dort_compare.views import history

Level = tuple[str, str]
"""Of a module stack: the key of a call, and the path of its module."""

Stack = tuple[Level, ...]
"""A call of a module, the last, with those around it."""


@dataclass
class TracedCall:
    """A call of a module that was traced into a graph.

    ``module`` says which module it is. ``entries`` are the tensors from before the call that are read in it,
    ``exits`` those computed in it that an operation after it, or the caller, reads, in order, with the sequence numbers
    that torch gave to their operations. ``depth`` is 0 for a call that no other traced call makes.
    """

    module: Identity
    depth: int
    entries: dict[fx.Node, None] = field(default_factory=dict)
    exits: dict[fx.Node, int] = field(default_factory=dict)


def traced_calls(graph: fx.Graph) -> list[TracedCall]:
    """The calls that a forward or inference graph holds; those of one module in the order in which they begin.

    A node belongs to the calls of all that was merged into it. Whether one of no known origin is made in a call nobody
    knows: what it alone reads is no exit.
    """
    found: dict[Stack, TracedCall] = {}
    begun: dict[Stack, int] = {}
    place, saved = 0, saved_values(graph)
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        place = node.meta.get(PLACE, place)
        for stack, meta in _calls_around(node).items():
            here = meta.get(PLACE, place)
            begun[stack] = min(here, begun.get(stack, here))
            call = found.setdefault(stack, TracedCall(_identity(stack[-1]), len(stack) - 1))
            before = [each for each in _operands(node) if stack not in _calls_around(each)]
            call.entries.update(dict.fromkeys(before))
            outside = {user for user in node.users if stack not in _calls_around(user) and _has_origin(user)}
            is_read = any(node not in saved if user.op == "output" else not is_backward(user) for user in outside)
            if is_read and isinstance(node.meta.get("val"), torch.Tensor):
                call.exits[node] = meta.get(OPERATION, -1)
    return [found[stack] for stack in sorted(found, key=begun.__getitem__)]


def _calls_around(node: fx.Node) -> dict[Stack, Mapping[str, Any]]:
    """The calls of modules that a node is made in, each with those around it, and what torch knows of it there."""
    stacks = ((_stack(meta), meta) for meta in reversed(metas_of(node)))
    return {stack[: i + 1]: meta for stack, meta in stacks for i in range(len(stack))}


def _has_origin(node: fx.Node) -> bool:
    """Whether torch says where a node stems from, as it does not of what reads a number that it has made symbolic."""
    return node.op == "output" or any(MODULES in meta or STACK_TRACE in meta for meta in metas_of(node))


def modules_of(node: fx.Node) -> tuple[Identity, ...]:
    """Every module that a node, or its forward node, stems from, the innermost last."""
    return tuple(_identity(level) for level in _stack(node.meta) or _stack(node.meta, FORWARD_MODULES))


def incoming_gradients(graph: fx.Graph) -> Mapping[int, list[fx.Node]]:
    """By sequence number of a forward operation: what its backward operations read that others of them computed.

    One of these values is the gradient of the operation's result.
    """
    found: dict[int, dict[fx.Node, None]] = defaultdict(dict)
    for node in graph.nodes:
        if not is_backward(node):
            continue
        gradients = [operand for operand in _operands(node) if _is_gradient(operand)]
        for number in _numbers(node):
            found[number].update(dict.fromkeys(each for each in gradients if number not in _numbers(each)))
    return {number: list(nodes) for number, nodes in found.items()}


def regenerated(forward: fx.Graph, backward: fx.Graph) -> set[fx.Node]:
    """Views on the way to an output that torch makes anew outside of the graphs, of an input or of what it is given the
    gradient by instead: autograd goes back there, and the backward graph has the gradients by them but in part."""
    given, others = by_tangent(forward, backward)
    found: set[fx.Node] = set()
    for output in others:
        views, sources = history(output)
        if any(each in given or each.op == "placeholder" for each in (*views, *sources)):
            found |= views - given
    return found


def passed_on(node: fx.Node, incoming: Mapping[int, list[fx.Node]]) -> list[fx.Node]:
    """What ``incoming`` has for the operations before one for which it has nothing: one, such as a sum, that passes its
    gradient on unchanged. It is the gradient of ``node`` too unless their results have other readers."""
    found: dict[fx.Node, None] = {}
    seen: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        gradients = incoming.get(each.meta.get(OPERATION, -1), [])
        found.update(dict.fromkeys(gradients))
        if not gradients and each not in seen:
            seen.add(each)
            waiting.extend(_operands(each))
    return list(found)


def _numbers(node: fx.Node) -> set[int]:
    """The sequence numbers of the operations that a node computes; sums of gradients belong to none."""
    metas = (meta for meta in metas_of(node) if not meta.get(IS_SUM))
    return {number for meta in metas if (number := meta.get(OPERATION)) is not None}


def _operands(node: fx.Node) -> Iterator[fx.Node]:
    for operand in node.all_input_nodes:
        if isinstance(operand.meta.get("val"), torch.Tensor):
            yield operand


def _is_gradient(node: fx.Node) -> bool:
    return node.name.startswith("tangents") if node.op == "placeholder" else is_backward(node)


def is_backward(node: fx.Node) -> bool:
    """Whether autograd made the node, and not the forward pass that a backward graph repeats in part."""
    return node.op == "call_function" and node.meta.get(PASS) == "is_backward"


def _stack(meta: Mapping[str, Any], key: str = MODULES) -> Stack:
    return tuple((str(call), str(path)) for call, (path, _) in (meta.get(key) or {}).items())


def _identity(level: Level) -> Identity:
    key, path = level
    module, path_of_module = module_of_key(key)
    return module if path_of_module is None else Like(module, path_of_module, path)
