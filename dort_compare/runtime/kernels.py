"""Asks ONNX Runtime which nodes it has kernels for.

Nodes for which a provider has no bfloat16 kernel are computed in float32, their results rounded back.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.tensor_adapters import to_torch_dtype

from dort_compare import provenance
from dort_compare.dtypes import dtype_name
from dort_compare.runtime.providers import Provider, loads

_FLOAT, _BFLOAT16 = ir.DataType.FLOAT, ir.DataType.BFLOAT16


def with_kernels(model: ir.Model, providers: Sequence[Provider]) -> ir.Model:
    """A copy of ``model`` whose every bfloat16 node has a kernel or casts around it; the model itself if all have one.

    What is computed in float32 says so in its metadata, nodes and values alike. Value names do not change.
    """
    probe = _Probe(model.graph.opset_imports[""], providers)
    if not any(_touches_bfloat16(node) and not probe.has_kernel(node) for node in model.graph):
        return model
    raised = model.clone()
    for node in list(raised.graph):
        if _touches_bfloat16(node) and not probe.has_kernel(node):
            _raise(raised.graph, node)
    return raised


def missing_kernels(graph: ir.Graph, providers: Sequence[Provider]) -> dict[str, str]:
    """From FX nodes that the providers cannot compute to the reason.

    What ``with_kernels`` would cast is not missing, and what cannot be asked alone (a node with a nested graph or with
    a value of unknown dtype) is taken to be there.
    """
    probe = _Probe(graph.opset_imports[""], providers)
    missing: dict[str, str] = {}
    for node in graph:
        fx_node = node.metadata_props.get(provenance.FX_NODE)
        if fx_node and _stands_alone(node) and not _touches_bfloat16(node) and not probe.has_kernel(node):
            missing.setdefault(fx_node, f"{providers[0][0]} has no kernel of {node.op_type} for {_dtypes(node)}")
    return missing


def _stands_alone(node: ir.Node) -> bool:
    nested = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    if any(attribute.type in nested for attribute in node.attributes.values()):
        return False
    return all(value is None or value.dtype is not None for value in (*node.inputs, *node.outputs))


def _dtypes(node: ir.Node) -> str:
    found = {value.dtype: None for value in (*node.inputs, *node.outputs) if value is not None and value.dtype}
    return ", ".join(dtype_name(to_torch_dtype(dtype)) for dtype in found)


class _Probe:
    """Asks ONNX Runtime itself, with a model of one node, and remembers the answer for nodes of the same signature."""

    def __init__(self, opset: int, providers: Sequence[Provider]) -> None:
        self.opset = opset
        self.providers = providers
        self.answers: dict[object, bool] = {}

    def has_kernel(self, node: ir.Node) -> bool:
        key = (node.op_type, *(v and v.dtype for v in node.inputs), *(v.dtype for v in node.outputs))
        if key not in self.answers:
            self.answers[key] = loads(self._single(node), self.providers)
        return self.answers[key]

    def _single(self, node: ir.Node) -> bytes:
        inputs = [v and ir.Value(name=f"x{i}", type=v.type) for i, v in enumerate(node.inputs)]
        outputs = [ir.Value(name=f"y{i}", type=v.type) for i, v in enumerate(node.outputs)]
        alone = ir.Node(node.domain, node.op_type, inputs, node.attributes.values(), outputs=outputs)
        fed = [v for v in inputs if v is not None]
        graph = ir.Graph(fed, outputs, nodes=[alone], opset_imports={"": self.opset}, name="probe")
        return ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString()


def _touches_bfloat16(node: ir.Node) -> bool:
    return any(value is not None and value.dtype == _BFLOAT16 for value in (*node.inputs, *node.outputs))


def _raise(graph: ir.Graph, node: ir.Node) -> None:
    metadata = {**node.metadata_props, provenance.COMPUTED_IN: "float32"}
    node.metadata_props.update(metadata)
    for i, value in enumerate(node.inputs):
        if value is not None and value.dtype == _BFLOAT16:
            name = f"{node.name}.input{i}"
            cast = _cast(value, f"{name}.float32", _FLOAT, name, metadata)
            graph.insert_before(node, cast)
            node.replace_input_with(i, cast.outputs[0])
    for i, value in enumerate(node.outputs):
        if value.dtype == _BFLOAT16:
            _round_back(graph, node, value, f"{node.name}.output{i}", metadata)


def _round_back(graph: ir.Graph, node: ir.Node, value: ir.Value, node_name: str, metadata: dict[str, str]) -> None:
    name = str(value.name)
    cast = _cast(value, name, _BFLOAT16, node_name, metadata)
    rounded = cast.outputs[0]
    rounded.metadata_props.update({**value.metadata_props, provenance.COMPUTED_IN: "float32"})
    value.replace_all_uses_with(rounded, replace_graph_outputs=True)
    cast.replace_input_with(0, value)
    value.name, value.type = f"{name}.float32", ir.TensorType(_FLOAT)
    value.metadata_props.clear()
    graph.insert_after(node, cast)


def _cast(value: ir.Value, name: str, dtype: ir.DataType, node_name: str, metadata: dict[str, str]) -> ir.Node:
    output = ir.Value(name=name, type=ir.TensorType(dtype), shape=value.shape)
    return ir.Node(
        "",
        "Cast",
        [value],
        [ir.AttrInt64("to", dtype)],
        outputs=[output],
        name=node_name,
        metadata_props=metadata,
    )
