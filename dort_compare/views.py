"""Outputs that are views: they share memory with what they are views of, so torch makes them, not ONNX Runtime."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from dort_compare.generated import made_code
from dort_compare.scalars import is_number

_UNSAFE_VIEW = torch.ops.aten._unsafe_view.default
"""A view to all but autograd, as a reshape that copies makes one of the copy."""


@dataclass(frozen=True)
class View:
    """How torch makes a view: ``make(*operands)``.

    ``operands`` names graph inputs and, beside them, at most one value that the graph computes: ``base``.
    """

    operands: tuple[str, ...]
    base: fx.Node | None
    make: Callable[..., Any]


def view_of(node: fx.Node) -> View | None:
    """The view that ``node`` is, of inputs of its graph or of one computed value; None if it is something computed.

    AOTAutograd reads strides and offset off such an output, and eager's output changes with what it is a view of.
    """
    steps, sources = history(node)
    computed = [source for source in sources if source.op != "placeholder"]
    if not steps or len(computed) > 1 or not all(isinstance(base.meta.get("val"), torch.Tensor) for base in computed):
        return None
    make = _one_after_another(sources, sorted(steps)) or _compiled(sources, sorted(steps), node)
    return View(tuple(source.name for source in sources), computed[0] if computed else None, make)


def _one_after_another(sources: Sequence[fx.Node], steps: Sequence[fx.Node]) -> Callable[..., Any] | None:
    """The steps, if each takes what the one before it made and no other value; that spares most views a compilation."""
    if len(sources) != 1:
        return None
    before, calls = sources[0], []
    for step in steps:
        others = (*step.args[1:], *step.kwargs.values())
        if step.args[:1] != (before,) or step.all_input_nodes != [before] or before in others:
            return None
        calls.append((step.target, step.args[1:], step.kwargs))
        before = step

    def make(value: Any) -> Any:
        for function, arguments, named in calls:
            value = function(value, *arguments, **named)  # type: ignore[operator]
        return value

    return make


def _compiled(sources: Sequence[fx.Node], steps: Sequence[fx.Node], result: fx.Node) -> Callable[..., Any]:
    graph = fx.Graph()
    copies = {source: graph.placeholder(source.name) for source in sources}
    for step in steps:
        copies[step] = graph.node_copy(step, copies.__getitem__)
    graph.output(copies[result])
    return made_code(fx.GraphModule(torch.nn.Module(), graph))


def history(node: fx.Node) -> tuple[set[fx.Node], list[fx.Node]]:
    """The views and sizes that lead to ``node``, and what they start from."""
    steps: set[fx.Node] = set()
    sources: dict[fx.Node, None] = {}
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if not _is_step(each):
            sources[each] = None
        elif each not in steps:
            steps.add(each)
            waiting.extend(each.all_input_nodes)
    return steps, list(sources)


def memories(nodes: Iterable[fx.Node]) -> set[StorageWeakRef]:
    """The memory of the tensors that were traced for nodes; those of a view, and of what it is a view of, are one."""
    values = pytree.tree_leaves([node.meta.get("val") for node in nodes])
    tensors = (value for value in values if isinstance(value, torch.Tensor) and torch._C._has_storage(value))
    return {StorageWeakRef(tensor.untyped_storage()) for tensor in tensors}


def _is_step(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return _is_step(node.all_input_nodes[0])
    return node.op == "call_function" and moves_nothing(node)


def moves_nothing(node: fx.Node) -> bool:
    """Whether a node computes no elements of tensors: an input, one of several results, a view, arithmetic on sizes."""
    if node.op == "placeholder" or node.target is operator.getitem:
        return True
    if is_number(node.meta.get("val")):
        return node.op == "call_function"
    return isinstance(node.target, torch._ops.OpOverload) and (node.target.is_view or node.target is _UNSAFE_VIEW)
