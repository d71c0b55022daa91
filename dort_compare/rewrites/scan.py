"""Nodes that go through the leading two axes of what they read a piece at a time, by ONNX's Scan."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from dort_compare import provenance
from dort_compare.rewrites.graph import fx_nodes_of, sizes_of
from dort_compare.rewrites.writer import Writer

CUT = 2
"""Axes that are cut into pieces."""


class Scan:
    """``nodes`` of a graph, of which each turn computes pieces of sizes (1, width, ...).

    ``widths`` holds the width of all that the nodes make, and of some of what they read; the rest of that, every turn
    reads whole. The sizes of values with a width have to be known.
    """

    def __init__(self, graph: ir.Graph, nodes: Collection[ir.Node], widths: Mapping[ir.Value, int]) -> None:
        order = [*graph]
        places = [i for i, node in enumerate(order) if node in nodes]
        self._graph = graph
        self._nodes = [order[i] for i in places]
        self._among = [node for node in order[places[0] : places[-1]] if node not in nodes]
        self._widths = widths
        last = self._nodes[-1]
        self._name = f"{last.outputs[0].name}.scan"
        self._metadata = {**last.metadata_props, provenance.FX_NODE: fx_nodes_of(self._nodes)}

    def take_place(self) -> None:
        """Puts a Scan in the place of the nodes, and behind it what stood among them and reads what they make."""
        inside = [value for node in self._nodes for value in node.outputs]
        operands = [value for value in self._widths if value not in inside]
        results = [value for value in inside if self._is_read_outside(value)]
        readers = self._readers_among()
        feeds, gathers = (Writer(f"{self._name}.{what}", self._metadata) for what in ("feed", "gather"))
        stacks = [feeds.reshaped(value, self._stack(value)) for value in operands]
        scanned = [self._like(value, self._stack(value)) for value in results]
        whole = [gathers.reshaped(each, sizes_of(value) or []) for each, value in zip(scanned, results, strict=True)]
        for value, result in zip(results, whole, strict=True):
            self._let_others_read(result, value)
        self._graph.insert_before(self._nodes[-1], feeds.nodes)
        self._graph.remove(readers)
        body = self._body(operands, results)
        attributes = [ir.AttrInt64("num_scan_inputs", len(operands)), ir.AttrGraph("body", body)]
        scan = ir.Node("", "Scan", stacks, attributes, outputs=scanned, name=self._name, metadata_props=self._metadata)
        self._graph.insert_after(feeds.nodes[-1], [scan, *gathers.nodes, *readers])

    def _readers_among(self) -> list[ir.Node]:
        """What stands among the nodes and reads what these make, or what becomes of that."""
        late = {*self._nodes}
        found = []
        for node in self._among:
            if not late.isdisjoint(node.predecessors()):
                late.add(node)
                found.append(node)
        return found

    def _body(self, operands: Sequence[ir.Value], results: Sequence[ir.Value]) -> ir.Graph:
        """What a turn computes of a piece of each of ``operands``: a piece of each of ``results``."""
        self._graph.remove(self._nodes)
        pieces = {value: self._like(value, self._piece(value)) for value in operands}
        for node in self._nodes:
            for i, value in enumerate(node.inputs):
                if value in pieces:
                    node.replace_input_with(i, pieces[value])
            for value in node.outputs:
                value.shape = ir.Shape(self._piece(value))
        return ir.Graph([*pieces.values()], results, nodes=self._nodes, name=self._name)

    def _is_read_outside(self, value: ir.Value) -> bool:
        return value.is_graph_output() or any(use.node not in self._nodes for use in value.uses())

    def _let_others_read(self, new: ir.Value, value: ir.Value) -> None:
        """Gives ``new`` the name of ``value`` and its readers outside."""
        new.name, value.name = value.name, new.name
        new.metadata_props.update(value.metadata_props)
        for use in value.uses():
            if use.node not in self._nodes:
                use.node.replace_input_with(use.idx, new)
        for i, output in enumerate(self._graph.outputs):
            if output is value:
                self._graph.outputs[i] = new

    def _piece(self, value: ir.Value) -> list[int]:
        return [1, self._widths[value], *(sizes_of(value) or [])[CUT:]]

    def _stack(self, value: ir.Value) -> list[int]:
        """The sizes of all pieces of a value, one behind the other."""
        turns = math.prod((sizes_of(value) or [])[:CUT]) // self._widths[value]
        return [turns, *self._piece(value)]

    def _like(self, value: ir.Value, sizes: Sequence[int]) -> ir.Value:
        """A new value of the dtype of ``value``."""
        return ir.Value(name=f"{self._name}.{value.name}.{len(sizes)}", shape=ir.Shape(sizes), type=value.type)
