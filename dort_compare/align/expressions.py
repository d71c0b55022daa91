"""What a node computes, in words that two models share: operator, attributes, and which value each operand is."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Hashable, Mapping, Sequence

import onnx

from dort_compare.captures import bodies
from dort_compare.trace.dataflow import Dataflow, Node
from dort_compare.trace.passages import RESHAPES
from dort_compare.trace.schemas import plain_domain, schema_of

COMMUTATIVE = frozenset(
    ["Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]
)
VIEWS = RESHAPES | {"Expand"}
"""Operators that keep the order of elements; Expand, where it makes none."""


def operator_of(node: Node) -> tuple[str, str]:
    """Domain and type."""
    return plain_domain(node.proto.domain), node.proto.op_type


def attributes_of(node: Node, flow: Dataflow) -> Hashable:
    """Attributes, those that are left out at their defaults; bodies with names that do not depend on the model's."""
    found = {name: _content(attribute) for name, attribute in attributes_in_full(node, flow).items()}
    captured = list(node.operands[len(node.proto.input) :])
    body = tuple(_body(graph, {}, captured) for graph in bodies(node.proto))
    return tuple(sorted((name, content) for name, content in found.items() if content)), body


def attributes_in_full(node: Node, flow: Dataflow) -> dict[str, onnx.AttributeProto]:
    """Attributes by name, those that are left out at the defaults of the operator, where it says one."""
    return {**_defaults(*_versioned(node, flow)), **{a.name: a for a in node.proto.attribute}}


def is_default(attribute: onnx.AttributeProto, node: Node, flow: Dataflow) -> bool:
    """Whether an attribute of a node is what the operator says goes without it."""
    default = _defaults(*_versioned(node, flow)).get(attribute.name)
    return default is not None and _content(default) == _content(attribute)


def named_operands(node: Node, flow: Dataflow) -> set[str]:
    """What the operator calls the operands that are there: some of its versions read what is an attribute of others."""
    schema = schema_of(*_versioned(node, flow))
    return {
        formal.name for formal, name in zip(schema.inputs if schema else (), node.proto.input, strict=False) if name
    }


def _versioned(node: Node, flow: Dataflow) -> tuple[str, int, str]:
    domain, op_type = operator_of(node)
    versions = (opset.version for opset in flow.proto.opset_import if plain_domain(opset.domain) == domain)
    return op_type, next(versions, 1), domain


@functools.lru_cache(maxsize=1024)
def _defaults(op_type: str, version: int, domain: str) -> Mapping[str, onnx.AttributeProto]:
    schema = schema_of(op_type, version, domain)
    attributes = schema.attributes.items() if schema else ()
    return {name: a.default_value for name, a in attributes if a.default_value.name}


def _content(attribute: onnx.AttributeProto) -> bytes:
    """The value alone; nothing for a body, which is read apart."""
    if attribute.HasField("g") or attribute.graphs:
        return b""
    if attribute.HasField("t"):
        return _tensor(attribute.t)
    bare = onnx.AttributeProto()
    bare.CopyFrom(attribute)
    for note in ("name", "doc_string", "type"):
        bare.ClearField(note)
    return bare.SerializeToString(deterministic=True) or b"0"


def _tensor(tensor: onnx.TensorProto) -> bytes:
    values = onnx.numpy_helper.to_array(tensor)
    header = f"{tensor.data_type}{values.shape}".encode()
    return hashlib.blake2b(header + values.tobytes(), digest_size=16).digest()


def _body(graph: onnx.GraphProto, outer: Mapping[str, str], captured: Sequence[str]) -> Hashable:
    """A body with its values numbered; what it reads from outside by its place among the operands of the node."""
    names = dict(outer)

    def word(name: str) -> str:
        return names[name] if name in names else f"outside {captured.index(name)}" if name in captured else name

    def own(name: str) -> None:
        names[name] = f"{len(outer)}.{len(names)}" if name else ""

    for value in graph.input:
        own(value.name)
    for tensor in graph.initializer:
        names[tensor.name] = _tensor(tensor).hex()
    nodes = []
    for node in graph.node:
        read = tuple(map(word, node.input))
        inner = tuple(_body(each, names, captured) for each in bodies(node))
        attributes = tuple(sorted((a.name, _content(a)) for a in node.attribute))
        nodes.append((node.domain, node.op_type, read, len(node.output), attributes, inner))
        for name in node.output:
            own(name)
    return tuple(nodes), tuple(word(value.name) for value in graph.output)


def is_transparent(node: Node) -> bool:
    """Whether the first result is the first operand, in another dtype of the same kind perhaps."""
    op_type = node.proto.op_type
    if op_type == "Dropout":
        return len([name for name in node.operands if name]) < 3
    return op_type in ("Identity", "Cast", "CastLike")
