"""A graph put together of pieces, which run one after the other in the order of its levels."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from dort_compare.backends.levels import is_light
from dort_compare.backends.piece_boundary import Handed, Source, handed, returned
from dort_compare.fx_graph import attribute_of, graph_of


def assembled(
    graph_module: fx.GraphModule, levels: Mapping[fx.Node, int], outside: Collection[fx.Node]
) -> fx.GraphModule:
    """A copy of the graph in which even levels are pieces: the nodes of each are gathered in a submodule.

    The submodules hold copies of the nodes under their names, with their metadata, and the graphs of branches and loops
    that these read, and return tuples. Views, arithmetic on sizes and checks alone do not make a piece. A piece makes
    views that it reads itself, where that spares a copy and they are not ``outside`` of all pieces.
    """
    return _Assembly(graph_module, outside).assemble(levels)


class _Assembly:
    """Copies a graph, node by node and piece by piece."""

    def __init__(self, graph_module: fx.GraphModule, outside: Collection[fx.Node]) -> None:
        self.source = graph_module
        self.outside = outside
        self.graph = fx.Graph()
        self.attributes: dict[str, Any] = {}
        self.copies: dict[fx.Node, fx.Node] = {}

    def assemble(self, levels: Mapping[fx.Node, int]) -> fx.GraphModule:
        """The nodes by level, in their order; those of a piece in one submodule."""
        nodes = sorted(self.source.graph.nodes, key=levels.__getitem__)
        groups = [(level, list(group)) for level, group in itertools.groupby(nodes, key=levels.__getitem__)]
        pieces = [
            _Piece.of(members, self.outside) if level % 2 == 0 and _computes(members) else None
            for level, members in groups
        ]
        wanted: set[fx.Node] = set()
        for piece, (_, members) in zip(pieces, groups, strict=True):
            wanted.update(piece.sources() if piece else (each for node in members for each in node.all_input_nodes))
        for piece, (_, members) in zip(pieces, groups, strict=True):
            if piece:
                self._add_piece(piece, [node for node in members if node in wanted])
            else:
                for node in members:
                    if node in wanted or node.op != "get_attr":
                        self._add(node)
        return fx.GraphModule(self.attributes, self.graph)

    def _add(self, node: fx.Node) -> None:
        if node.op == "get_attr":
            self.attributes[str(node.target)] = attribute_of(node)
        self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)

    def _add_piece(self, piece: _Piece, results: Sequence[fx.Node]) -> None:
        name = f"piece_{len(self.attributes)}"
        returns = [returned(node) for node in results]
        bodies = {str(node.target): body for node, body in piece.bodies.items()}
        self.attributes[name] = fx.GraphModule(bodies, piece.graph(returns))
        taken = [source.taken(self.copies[source.node]) for source in piece.takes]
        call = self.graph.call_module(name, tuple(taken))
        for position, source in enumerate(returns):
            made = self.graph.call_function(operator.getitem, (call, position))
            made.meta = source.meta
            self.copies[source.node] = source.given_back(made)


def _computes(nodes: Sequence[fx.Node]) -> bool:
    return any(node.op == "call_function" and not is_light(node) for node in nodes)


@dataclass(frozen=True)
class _Piece:
    """The nodes of a piece, what it is handed for each value that it reads, and the graphs that it holds."""

    nodes: Sequence[fx.Node]
    reads: Mapping[fx.Node, Handed]
    bodies: Mapping[fx.Node, fx.GraphModule]

    @classmethod
    def of(cls, nodes: Sequence[fx.Node], outside: Collection[fx.Node]) -> _Piece:
        inside = set(nodes)
        read = dict.fromkeys(o for node in nodes for o in node.all_input_nodes if o not in inside)
        bodies = {operand: graph for operand in read if (graph := graph_of(operand)) is not None}
        return cls(nodes, {operand: handed(operand, outside) for operand in read if operand not in bodies}, bodies)

    @property
    def takes(self) -> list[Source]:
        """What it is handed, each once."""
        return list(dict.fromkeys(each.source for each in self.reads.values()))

    def sources(self) -> list[fx.Node]:
        """The nodes that stand for what it is handed."""
        return [source.node for source in self.takes]

    def graph(self, returns: Sequence[Source]) -> fx.Graph:
        """Its graph, with copies of its nodes, which returns a tuple."""
        graph = fx.Graph()
        placeholders = {source: source.placeholder(graph) for source in self.takes}
        copies = {source.node: source.given_back(taken) for source, taken in placeholders.items()}
        steps = (step for each in self.reads.values() for step in each.steps)
        for node in (*self.bodies, *steps, *self.nodes):
            if node not in copies:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(source.made(copies[source.node]) for source in returns))
        return graph
