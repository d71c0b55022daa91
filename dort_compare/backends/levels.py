"""Pieces of a graph, which run one after the other, by levels.

Every node of a graph has a level, and nothing reads from a level above its own, so that the order of the levels is an
order of execution; what the graph takes stands below all, at -1, its output above all.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from dort_compare.checks import check_of
from dort_compare.views import moves_nothing


def assembled(
    graph_module: fx.GraphModule, levels: Mapping[fx.Node, int], is_piece: Callable[[int], bool]
) -> fx.GraphModule:
    """A copy of the graph in which the nodes of each level that ``is_piece`` says are gathered in a submodule.

    The submodules hold copies of the nodes under their names, with their metadata, and return tuples. Views, arithmetic
    on sizes and checks alone do not make a piece.
    """
    return _Assembly(graph_module).assemble(levels, is_piece)


def is_light(node: fx.Node) -> bool:
    """Whether a node costs next to nothing: a view, arithmetic on numbers, a check."""
    return moves_nothing(node) or check_of(node) is not None


# Putting it together.


class _Assembly:
    """Copies a graph, node by node and piece by piece."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        self.source = graph_module
        self.graph = fx.Graph()
        self.attributes: dict[str, Any] = {}
        self.copies: dict[fx.Node, fx.Node] = {}

    def assemble(self, levels: Mapping[fx.Node, int], is_piece: Callable[[int], bool]) -> fx.GraphModule:
        """The nodes by level, in their order; those of a piece in one submodule."""
        nodes = sorted(self.source.graph.nodes, key=levels.__getitem__)
        for level, group in itertools.groupby(nodes, key=levels.__getitem__):
            members = list(group)
            if is_piece(level) and any(node.op == "call_function" and not is_light(node) for node in members):
                self._add_piece(members)
            else:
                for node in members:
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
