"""The dtypes and shapes of what ONNX nodes compute, by ONNX's own inference."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from dort_compare.errors import LoweringError

_READ = 20
"""Elements up to which ONNX gets to know a constant: it asks for sizes, axes and the like."""

Inferred = tuple[ir.TypeProtocol | None, ir.Shape | None]


class Inference:
    """Infers what the nodes of one graph compute, what is alike only once: a model repeats its layers."""

    def __init__(self) -> None:
        self._known: dict[object, list[Inferred]] = {}

    def __call__(self, node: ir.Node, schema: onnx.defs.OpSchema) -> None:
        """Writes dtypes and shapes onto the outputs, as far as they can be known; not where a graph is nested in the
        node, for whoever wrote that knows what comes out of it.

        Raises LoweringError where ONNX refuses the node.
        """
        if any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values()):
            return
        attributes = tuple((attribute.name, attribute.value) for attribute in node.attributes.values())
        key = (node.op_type, attributes, len(node.outputs), *map(_described, node.inputs))
        if key not in self._known:
            try:
                self._known[key] = _inferred(node, schema)
            except Exception as problem:  # noqa: BLE001  (ONNX's exceptions have no other common base)
                reason = str(problem).splitlines()[0]
                raise LoweringError(f"ONNX node {node.name} ({node.op_type}) is not legal: {reason}") from None
        for output, (kind, shape) in zip(node.outputs, self._known[key], strict=True):
            output.type, output.shape = kind, shape


def _described(value: ir.Value | None) -> object:
    """All that an inference asks of an input."""
    if value is None or _content(value) is not None:
        return value
    return type(value.type), value.dtype, None if value.shape is None else value.shape.dims


def _content(value: ir.Value) -> ir.TensorProtocol | None:
    constant = value.const_value
    return constant if constant is not None and constant.size <= _READ else None


def _inferred(node: ir.Node, schema: onnx.defs.OpSchema) -> list[Inferred]:
    inputs = {str(value.name): value for value in node.inputs if value is not None}
    types = {name: _type_of(value) for name, value in inputs.items()}
    contents = {name: content for name, value in inputs.items() if (content := _content(value)) is not None}
    constants = {name: ir.serde.serialize_tensor(content) for name, content in contents.items()}
    found = onnx.shape_inference.infer_node_outputs(schema, ir.serde.serialize_node(node), types, constants)
    return [_read_off(found.get(str(output.name))) for output in node.outputs]


def _type_of(value: ir.Value) -> onnx.TypeProto:
    if value.type is None:
        raise LoweringError(f"the type of {value.name} is not known")
    kind = ir.serde.serialize_type(value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(kind, value.shape)
    return kind


def _read_off(kind: onnx.TypeProto | None) -> Inferred:
    if kind is None:
        return None, None
    return ir.serde.deserialize_type_proto_for_type(kind), ir.serde.deserialize_type_proto_for_shape(kind)
