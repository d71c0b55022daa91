"""What an ONNX node reads, and what its nested graphs take from outside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableSequence

import onnx


def bodies(proto: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among the attributes of a node."""
    for attribute in proto.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def with_bodies(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those within them, as an ``If`` has."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from with_bodies(body.node)


def captured(body: onnx.GraphProto) -> Iterator[str]:
    """What a body reads from outside, in order."""
    own = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
    for node in body.node:
        yield from (name for name in reads_of(node) if name not in own)
        own.update(node.output)
    yield from (value.name for value in body.output if value.name not in own)


def reads_of(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node reads, those that its nested graphs take from outside included."""
    yield from filter(None, node.input)
    for body in bodies(node):
        yield from captured(body)


def read_by(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """The names that any of some nodes reads."""
    return {name for node in nodes for name in reads_of(node)}


def readers_of(nodes: Iterable[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
    """By value, the nodes that read it, once for each time."""
    found: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in reads_of(node):
            found.setdefault(name, []).append(node)
    return found


def rename_read(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Lets a node, and what its nested graphs take from outside, read other names."""
    _rename(node.input, names)
    for body in bodies(node) if names else ():
        outside = {name: names[name] for name in captured(body) if name in names}
        for inner in body.node:
            rename_read(inner, outside)
        for value in body.output:
            value.name = outside.get(value.name, value.name)


def rename_made(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Lets a node give what it makes other names."""
    _rename(node.output, names)


def _rename(values: MutableSequence[str], names: Mapping[str, str]) -> None:
    for i, name in enumerate(values):
        if name in names:
            values[i] = names[name]
