"""ONNX models as protobuf has them: a copy, other nodes in the place of a graph's own, and names that are free."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import onnx
from google.protobuf.message import Message

_Proto = TypeVar("_Proto", bound=Message)


def copy_of(proto: _Proto) -> _Proto:
    """A copy of a model, or of a part of one, that may be changed."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    return copy


def replace_nodes(graph: onnx.GraphProto | onnx.FunctionProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Gives the graph ``nodes``, its own among them, in the place of those that it has."""
    kept = list(nodes)
    del graph.node[:]
    graph.node.extend(kept)


def free_name(name: str, taken: set[str]) -> str:
    """``name``, longer where it is ``taken``, among which it is from now on."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name
