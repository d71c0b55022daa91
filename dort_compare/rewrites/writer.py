"""New nodes that a rule puts into a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from dort_compare import provenance
from dort_compare.rewrites.graph import fx_nodes_of, take_place, typed


class Writer:
    """Writes nodes, each of one result; they bear ``name`` with a number, and the metadata of what they stand for."""

    def __init__(self, name: str, metadata: Mapping[str, str]) -> None:
        self._name, self._metadata = name, metadata
        self.nodes: list[ir.Node] = []

    def write(self, op_type: str, *inputs: ir.Value | None, domain: str = "", **attributes: Any) -> ir.Value:
        """The result of one more node."""
        name = f"{self._name}.{len(self.nodes)}"
        node = ir.node(op_type, inputs, attributes, domain=domain, name=name, metadata_props={**self._metadata})
        result = node.outputs[0]
        result.name = name
        if op_type == "Constant":
            result.const_value = constant = attributes["value"]
            result.shape, result.type = constant.shape, ir.TensorType(constant.dtype)
        self.nodes.append(node)
        return result

    def integers(self, numbers: Sequence[int]) -> ir.Value:
        """Constant int64 numbers, of one dimension: what operators take as sizes, axes and bounds."""
        return self.write("Constant", value=ir.tensor([*numbers], ir.DataType.INT64))

    def reshaped(self, value: ir.Value, sizes: Sequence[int]) -> ir.Value:
        """The same elements in other sizes."""
        return typed(self.write("Reshape", value, self.integers(sizes)), sizes, value)


class Replacement(Writer):
    """Writes what takes the place of ``nodes``, of which the last one gives the result; it bears that one's name and
    ``rule``'s, and the FX nodes of all."""

    def __init__(self, nodes: Sequence[ir.Node], rule: str) -> None:
        last = nodes[-1]
        super().__init__(f"{last.name}.{rule}", {**last.metadata_props, provenance.FX_NODE: fx_nodes_of(nodes)})
        self._replaced = nodes

    def finish(self, graph: ir.Graph, result: ir.Value) -> None:
        """Puts all that was written in the place of the old nodes, and ``result`` in that of theirs."""
        last = self._replaced[-1]
        graph.insert_before(last, self.nodes)
        take_place(result, last.outputs[0])
        graph.remove(reversed(self._replaced), safe=True)
