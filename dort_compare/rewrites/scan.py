"""Nodes that go through the leading two axes of what they read a piece at a time, by ONNX's Scan."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from dort_compare import provenance
from dort_compare.rewrites.graph import fx_nodes_of, sizes_of

CUT = 2
"""Axes that are cut into pieces."""


class Scan:
    """``nodes`` of a graph, of which each turn computes pieces of sizes (1, width, ...).

    ``widths`` holds the width of all that the nodes make, and of some of what they read; the rest of that, every turn
    reads whole. The sizes of values with a width have to be known.
    """

    def __init__(self, graph: ir.Graph, nodes: Collection[ir.Node], widths: Mapping[ir.Value, int]) -> None:
        self._graph = graph
        self._nodes = [node for node in graph if node in nodes]
        self._widths = widths
        last = self._nodes[-1]
        self._name = f"{last.outputs[0].name}.scan"
        self._metadata = {**last.metadata_props, provenance.FX_NODE: fx_nodes_of(self._nodes)}
        self._made: list[ir.Node] = []

    def take_place(self) -> None:
        """Puts a Scan in the place of the nodes. The graph has to be sorted afterwards."""
        inside = [value for node in self._nodes for value in node.outputs]
        operands = [value for value in self._widths if value not in inside]
        results = [value for value in inside if self._is_read_outside(value)]
        stacks = [self._reshaped(value, self._stack(value)) for value in operands]
        scanned = [self._stack(value) for value in results]
        for value, stack in zip(results, scanned, strict=True):
            self._let_others_read(self._reshaped(stack, self._like(value, sizes_of(value) or [])), value)
        self._graph.insert_before(self._nodes[-1], self._made)
        body = self._body(operands, results)
        attributes = [ir.AttrInt64("num_scan_inputs", len(operands)), ir.AttrGraph("body", body)]
        scan = ir.Node("", "Scan", stacks, attributes, outputs=scanned, name=self._name, metadata_props=self._metadata)
        self._graph.insert_after(self._made[-1], scan)

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

    def _reshaped(self, value: ir.Value, result: ir.Value) -> ir.Value:
        """Writes what makes ``result`` of the same elements as ``value``."""
        sizes = ir.Value(name=f"{result.name}.sizes")
        self._write("Constant", [], sizes, [ir.AttrInt64s("value_ints", sizes_of(result) or [])])
        self._write("Reshape", [value, sizes], result)
        return result

    def _write(
        self, op_type: str, inputs: Sequence[ir.Value], output: ir.Value, attributes: Sequence[ir.Attr] = ()
    ) -> None:
        name = f"{self._name}.{len(self._made)}"
        node = ir.Node("", op_type, inputs, attributes, outputs=[output], name=name, metadata_props=self._metadata)
        self._made.append(node)

    def _piece(self, value: ir.Value) -> list[int]:
        return [1, self._widths[value], *(sizes_of(value) or [])[CUT:]]

    def _stack(self, value: ir.Value) -> ir.Value:
        """All pieces of a value, one behind the other."""
        turns = math.prod((sizes_of(value) or [])[:CUT]) // self._widths[value]
        return self._like(value, [turns, *self._piece(value)])

    def _like(self, value: ir.Value, sizes: Sequence[int]) -> ir.Value:
        """A new value of the dtype of ``value``."""
        return ir.Value(name=f"{self._name}.{value.name}.{len(sizes)}", shape=ir.Shape(sizes), type=value.type)
