"""ONNX models as protobuf has them: a copy, and other nodes in the place of a graph's own."""

from __future__ import annotations

from collections.abc import Iterable

import onnx


def copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model that may be changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def replace_nodes(graph: onnx.GraphProto | onnx.FunctionProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Gives the graph ``nodes``, its own among them, in the place of those that it has."""
    kept = list(nodes)
    del graph.node[:]
    graph.node.extend(kept)
