"""Cuts a graph of which some nodes run in eager torch: everything else is gathered in as few pieces as can be.

Every node gets a level. A node stands on the level of what it reads where both run in the same place, and one above
where they do not: even levels run in ONNX Runtime, odd ones in torch, and one even level is one piece. Nothing reads
from a level above its own, so the order of the levels is an order of execution. It takes time linear in the graph;
torch's CapabilityBasedPartitioner takes quadratic time (benchmarks/compile_time.py).
"""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from dort_compare.checks import check_of
from dort_compare.lowering.survey import call_of
from dort_compare.views import is_view


def split_graph(graph_module: fx.GraphModule, refused: Mapping[str, str]) -> fx.GraphModule:
    """A copy of the graph in which everything but the calls named in ``refused`` is gathered in submodules.

    The submodules hold copies of the nodes under their names, with their metadata, and return tuples. Views, arithmetic
    on sizes and checks alone do not make a piece: they stay with the refused nodes in torch, and so does what leads to
    an ``as_strided`` there, which reads memory rather than values. Refused nodes with side effects, random ones above
    all, keep their order.
    """
    nodes = list(graph_module.graph.nodes)
    levels = _levels(nodes, _with_their_memory(node for node in nodes if node.name in refused))
    pieces: dict[int, list[fx.Node]] = defaultdict(list)
    for node in nodes:
        if node.op == "call_function" and levels[node] % 2 == 0:
            pieces[levels[node]].append(node)
    kept = {level: piece for level, piece in pieces.items() if not all(map(_is_light, piece))}
    return _Assembly(graph_module).assemble(sorted(nodes, key=levels.__getitem__), levels, kept)


def _is_light(node: fx.Node) -> bool:
    """Whether a node costs next to nothing: a view, arithmetic on numbers, a check."""
    return is_view(node) or check_of(node) is not None


def _with_their_memory(refused: Iterable[fx.Node]) -> set[fx.Node]:
    """The refused nodes, with the views that lead to those that read strides."""
    outside = set(refused)
    waiting = [node for node in outside if "as_strided" in str(node.target)]
    while waiting:
        views = {node for node in waiting.pop().all_input_nodes if node.op == "call_function" and is_view(node)}
        waiting.extend(views - outside)
        outside |= views
    return outside


# Levels.


def _levels(nodes: Sequence[fx.Node], refused: set[fx.Node]) -> dict[fx.Node, int]:
    """The level of every node; what the graph takes stands below all, the output above all."""
    in_torch = set(refused)
    levels: dict[fx.Node, int] = {}
    last_effect: fx.Node | None = None
    for node in nodes:
        if node.op in ("placeholder", "get_attr"):
            levels[node] = -1
            continue
        read = [operand for operand in node.all_input_nodes if levels[operand] >= 0]
        if call_of(node) in refused or (_is_light(node) and any(operand in in_torch for operand in read)):
            in_torch.add(node)
        if node in refused and _has_effect(node):
            read += [last_effect] if last_effect else []
            last_effect = node
        parity = node in in_torch
        levels[node] = max((levels[each] + ((each in in_torch) != parity) for each in read), default=int(parity))
    levels[nodes[-1]] = max(levels.values()) + 1
    _postpone(nodes, levels, in_torch)
    return levels


def _postpone(nodes: Sequence[fx.Node], levels: dict[fx.Node, int], in_torch: set[fx.Node]) -> None:
    """Moves what depends on the graph's inputs alone to the piece that reads it: its value is not kept till then.

    A backward graph has much of it: derivatives of activations that a later part of the graph multiplies.
    """
    movable: dict[fx.Node, None] = {}
    for node in nodes:
        is_early = all(levels[operand] < 0 or operand in movable for operand in node.all_input_nodes)
        if node.op == "call_function" and node not in in_torch and is_early:
            movable[node] = None
    for node in reversed(movable):
        if node.target is operator.getitem:
            continue
        results = [user for user in node.users if user.target is operator.getitem and user in movable]
        readers = [reader for each in (node, *results) for reader in each.users if reader not in results]
        latest = [levels[reader] - (reader in in_torch) for reader in readers if reader.op != "output"]
        for each in (node, *results):
            levels[each] = min(latest, default=levels[each])


def _has_effect(node: fx.Node) -> bool:
    """Whether the order of the node among its like can matter; of what torch knows nothing about, it can."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return True
    return target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags


# Putting it together.


class _Assembly:
    """Copies a graph, node by node and piece by piece."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        self.source = graph_module
        self.graph = fx.Graph()
        self.attributes: dict[str, Any] = {}
        self.copies: dict[fx.Node, fx.Node] = {}

    def assemble(
        self, nodes: Sequence[fx.Node], levels: Mapping[fx.Node, int], pieces: Mapping[int, Sequence[fx.Node]]
    ) -> fx.GraphModule:
        """``nodes`` in order, each of ``pieces`` in one submodule at the place of its level."""
        for level, group in itertools.groupby(nodes, key=levels.__getitem__):
            if level in pieces:
                self._add_piece(pieces[level])
            else:
                for node in group:
                    self._add(node)
        return fx.GraphModule(self.attributes, self.graph)

    def _add(self, node: fx.Node) -> None:
        if node.op == "get_attr":
            self.attributes[str(node.target)] = operator.attrgetter(str(node.target))(self.source)
        self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)

    def _add_piece(self, piece: Sequence[fx.Node]) -> None:
        inside = set(piece)
        read = list(dict.fromkeys(o for node in piece for o in node.all_input_nodes if o not in inside))
        returned = [node for node in piece if any(user not in inside for user in node.users)]
        name = f"piece_{len(self.attributes)}"
        self.attributes[name] = fx.GraphModule(torch.nn.Module(), _graph_of(piece, read, returned))
        call = self.graph.call_module(name, tuple(self.copies[node] for node in read))
        for position, node in enumerate(returned):
            self.copies[node] = self.graph.call_function(operator.getitem, (call, position))
            self.copies[node].meta = dict(node.meta)


def _graph_of(piece: Sequence[fx.Node], read: Sequence[fx.Node], returned: Sequence[fx.Node]) -> fx.Graph:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in read:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in piece:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in returned))
    return graph
