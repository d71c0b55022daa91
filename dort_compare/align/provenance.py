"""Pairs by what lowerings wrote into the metadata: the ONNX value that stands for an FX node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from dort_compare import provenance
from dort_compare.provenance import Provenance


@dataclass(frozen=True)
class OnnxValue:
    """An ONNX value that stands for an FX node, and the ONNX nodes that were made for it, in order.

    Where an optimizer has put them in the place of others, ``fused`` holds all the FX nodes that those were made for.
    """

    name: str
    provenance: Provenance
    op_types: tuple[str, ...]
    nodes: tuple[str, ...]
    computed_in: str | None
    opaque: str | None = None
    fused: tuple[str, ...] = ()


def values_of_fx_nodes(model: onnx.ModelProto) -> Mapping[str, OnnxValue]:
    """By FX node name, the value of ``model`` that stands for it. A value of several FX nodes is found under each."""
    graph = model.graph
    nodes: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for fx_node in provenance.metadata_of(node).get(provenance.FX_NODE, "").split():
            nodes.setdefault(fx_node, []).append(node)
    producers = {name: node for node in graph.node for name in node.output}
    found: dict[str, OnnxValue] = {}
    for value in (*graph.value_info, *graph.output):
        metadata = provenance.metadata_of(value)
        origin = Provenance.read(metadata)
        if origin is None or value.name not in producers:
            continue
        for fx_node in origin.fx_node.split():
            made = nodes.get(fx_node) or [producers[value.name]]
            found[fx_node] = OnnxValue(
                name=value.name,
                provenance=origin,
                op_types=tuple(node.op_type for node in made),
                nodes=tuple(node.name for node in made),
                computed_in=metadata.get(provenance.COMPUTED_IN),
                opaque=metadata.get(provenance.OPAQUE),
            )
    return found
