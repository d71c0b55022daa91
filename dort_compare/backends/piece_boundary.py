"""What a piece of a graph is handed, and what it returns: contiguous tensors, as a session takes and makes them.

Of a transposed view, or of what is laid out in another order than that of its dimensions, torch would make a copy in
each step. A piece is handed what the view is of, in the order of its memory, and makes the view itself: ONNX Runtime
folds it into what reads it. What torch has traced in another order is returned in that of its memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from dort_compare.backends.calls import add_call
from dort_compare.backends.plain_views import base_of, is_known
from dort_compare.layouts import inverse, layout_of
from dort_compare.views import history, moves_nothing

aten = torch.ops.aten


@dataclass(frozen=True)
class Source:
    """A value that is handed over, with its dimensions in another ``order``, that of its memory, unless it is None."""

    node: fx.Node
    order: tuple[int, ...] | None = None

    def taken(self, copy: fx.Node) -> fx.Node:
        """The value as it is handed over, by the ``copy`` of its node in another graph."""
        return copy if self.order is None else add_call(copy.graph, copy, aten.permute.default, copy, [*self.order])

    @property
    def meta(self) -> dict[str, Any]:
        """That of the node, for the value as it is handed over."""
        if self.order is None:
            return dict(self.node.meta)
        kept = {key: each for key, each in self.node.meta.items() if key != "tensor_meta"}
        return {**kept, "val": self.node.meta["val"].permute(self.order)}

    def placeholder(self, graph: fx.Graph) -> fx.Node:
        """The input of a piece that takes it."""
        made = graph.placeholder(self.node.name if self.order is None else f"{self.node.name}_in_memory")
        made.meta = self.meta
        return made

    def made(self, value: fx.Node) -> fx.Node:
        """The value as it is handed over, computed of ``value`` in the graph of a piece unless it has it already."""
        if self.order is None:
            return value
        has = _clone_in(value, list(self.order))
        return has or add_call(value.graph, value, aten.clone.default, self.taken(value))

    def given_back(self, taken: fx.Node) -> fx.Node:
        """The value itself, where it was handed over as ``taken``."""
        if self.order is None:
            return taken
        return add_call(taken.graph, self.node, aten.permute.default, taken, [*inverse(self.order)])


@dataclass(frozen=True)
class Handed:
    """A value that a piece reads: what it is handed in its place, and the views that lead from there to the value."""

    source: Source
    steps: Sequence[fx.Node] = ()


def handed(node: fx.Node, outside: Collection[fx.Node]) -> Handed:
    """What a piece that reads ``node`` is handed; it cannot make the views that are ``outside`` of all pieces."""
    if not is_known(node) or node.meta["val"].is_contiguous():
        return Handed(Source(node))
    steps, base = history(node)[0], base_of(node)
    if base is None or not steps.isdisjoint(outside):
        steps, base = set(), node
    order = layout_of(base.meta["val"])
    if order is None:
        return Handed(Source(node))
    is_plain = order == tuple(range(len(order)))
    return Handed(Source(base, None if is_plain else order), sorted(steps))


def returned(node: fx.Node) -> Source:
    """How a piece returns a value of its graph: in the order of its memory, unless the whole graph returns it, too."""
    is_result = any(user.op == "output" for user in node.users)
    if is_result or moves_nothing(node) or not is_known(node) or node.meta["val"].is_contiguous():
        return Source(node)
    return Source(node, layout_of(node.meta["val"]))


def _clone_in(value: fx.Node, order: list[int]) -> fx.Node | None:
    """The contiguous copy that a graph has of ``value`` with its dimensions in that order."""
    permuted = [user for user in value.users if user.target is aten.permute.default and user.args[1] == order]
    clones = [user for each in permuted for user in each.users if user.target is aten.clone.default]
    return next((clone for clone in clones if clone.meta["val"].is_contiguous()), None)
