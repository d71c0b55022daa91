"""What the nested graphs of an ONNX node take from outside."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def bodies(proto: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among the attributes of a node."""
    for attribute in proto.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def captured(body: onnx.GraphProto) -> Iterator[str]:
    """What a body reads from outside, in order."""
    own = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
    for node in body.node:
        read = (*node.input, *(name for inner in bodies(node) for name in captured(inner)))
        yield from (name for name in read if name and name not in own)
        own.update(node.output)
    yield from (value.name for value in body.output if value.name not in own)
