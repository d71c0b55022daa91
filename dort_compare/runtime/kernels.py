"""Asks ONNX Runtime which nodes it has kernels for.

Nodes for which a provider has no kernel in half precision are computed in float32, their results rounded back.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx_ir.tensor_adapters import to_torch_dtype

from dort_compare import provenance
from dort_compare.dtypes import ONNX_HALF, dtype_name
from dort_compare.protos import free_name
from dort_compare.rewrites.graph import holds_graphs
from dort_compare.runtime.opsets import loads
from dort_compare.runtime.providers import Provider

_FLOAT, _FLOAT16, _BFLOAT16 = ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16
_NAMES_A_DTYPE = {"dtype", "to"}
"""Attributes that would have to change with the dtype of a result."""


def with_kernels(
    model: ir.Model, providers: Sequence[Provider], dtypes: Collection[ir.DataType] = ONNX_HALF
) -> ir.Model:
    """A copy of ``model`` whose every node in half precision has a kernel or casts around it; the model itself if all
    have one.

    Around float16 nodes without a kernel ONNX Runtime puts casts by itself, but drops those between two of them, and
    with them the rounding that torch's kernels do after each; ``dtypes`` without float16 leaves it to that. What is
    computed in float32 says so in its metadata, nodes and values alike. Value names do not change. A node with nested
    graphs stays as it is; those of its graphs are asked one by one.
    """
    probe = _Probe(model.graph.opset_imports, providers, model.functions.values())
    if not any(probe.lacks_half_kernel(node, dtypes) for node in model.graph.all_nodes()):
        return model
    raised = model.clone()
    taken = _names_in(raised.graph)
    for node in list(raised.graph.all_nodes()):
        if probe.lacks_half_kernel(node, dtypes):
            _raise(node, taken)
    return raised


def missing_kernels(graph: ir.Graph, providers: Sequence[Provider]) -> dict[str, str]:
    """From FX nodes that the providers cannot compute to the reason.

    What ``with_kernels`` would cast is not missing, and what cannot be asked alone (a node with a nested graph or with
    a value of unknown dtype) is taken to be there.
    """
    probe = _Probe(graph.opset_imports, providers)
    missing: dict[str, str] = {}
    for node in graph:
        fx_node = node.metadata_props.get(provenance.FX_NODE)
        if fx_node and _stands_alone(node) and not _touches(node, _BFLOAT16) and not probe.has_kernel(node):
            missing.setdefault(fx_node, f"{providers[0][0]} has no kernel of {node.op_type} for {_dtypes(node)}")
    return missing


def _stands_alone(node: ir.Node) -> bool:
    return not holds_graphs(node) and all(
        value is None or value.dtype is not None for value in (*node.inputs, *node.outputs)
    )


def _dtypes(node: ir.Node) -> str:
    found = {value.dtype: None for value in (*node.inputs, *node.outputs) if value is not None and value.dtype}
    return ", ".join(dtype_name(to_torch_dtype(dtype)) for dtype in found)


class _Probe:
    """Asks ONNX Runtime itself, with a model of one node, and remembers the answer for nodes of the same signature."""

    def __init__(
        self, opsets: Mapping[str, int], providers: Sequence[Provider], functions: Collection[ir.Function] = ()
    ) -> None:
        self.opsets = dict(opsets)
        self.providers = providers
        self.functions = [ir.to_proto(each) for each in functions]
        self.answers: dict[object, bool] = {}

    def has_kernel(self, node: ir.Node) -> bool:
        return self._answer(node, loads)

    def lacks_half_kernel(self, node: ir.Node, dtypes: Collection[ir.DataType]) -> bool:
        """Whether there is no kernel of a node that reads or makes one of ``dtypes``, bfloat16 or float16."""
        if _BFLOAT16 in dtypes and _touches(node, _BFLOAT16):
            return not holds_graphs(node) and not self.has_kernel(node)
        if _FLOAT16 not in dtypes or not _touches(node, _FLOAT16) or node.domain or not _stands_alone(node):
            return False
        return _NAMES_A_DTYPE.isdisjoint(node.attributes) and self._answer(node, _is_cast)

    def _answer(self, node: ir.Node, question: Callable[[bytes, Sequence[Provider]], bool]) -> bool:
        dtypes = (*(v and v.dtype for v in node.inputs), *(v.dtype for v in node.outputs))
        key = (question, *node.op_identifier(), dtypes)
        if key not in self.answers:
            self.answers[key] = question(self._single(node), self.providers)
        return self.answers[key]

    def _single(self, node: ir.Node) -> bytes:
        inputs = [v and ir.Value(name=f"x{i}", type=v.type) for i, v in enumerate(node.inputs)]
        outputs = [ir.Value(name=f"y{i}", type=v.type) for i, v in enumerate(node.outputs)]
        attributes, overload = node.attributes.values(), node.overload
        alone = ir.Node(node.domain, node.op_type, inputs, attributes, overload=overload, outputs=outputs)
        fed = [v for v in inputs if v is not None]
        graph = ir.Graph(fed, outputs, nodes=[alone], opset_imports=self.opsets, name="probe")
        model = ir.to_proto(ir.Model(graph, ir_version=10))
        model.functions.extend(self.functions)
        return model.SerializeToString()


def _names_in(graph: ir.Graph) -> set[str]:
    """The names of all values and nodes of a graph and of those nested in it: casts may stand in it already."""
    nodes = list(graph.all_nodes())
    made = (value.name for node in nodes for value in node.outputs)
    graphs = (graph, *graph.subgraphs())
    given = (value.name for each in graphs for value in (*each.inputs, *each.initializers.values()))
    return {name for name in (*made, *given, *(node.name for node in nodes)) if name}


def _touches(node: ir.Node, dtype: ir.DataType) -> bool:
    return any(value is not None and value.dtype == dtype for value in (*node.inputs, *node.outputs))


def _is_cast(model: bytes, providers: Sequence[Provider]) -> bool:
    """Whether ONNX Runtime puts casts around the one node of a model."""
    with tempfile.TemporaryDirectory(prefix="dort_compare_") as folder:
        path = Path(folder) / "with_casts.onnx"
        return loads(model, providers, path) and any(node.op_type == "Cast" for node in onnx.load(path).graph.node)


def _raise(node: ir.Node, taken: set[str]) -> None:
    graph = node.graph
    assert graph is not None
    metadata = {**node.metadata_props, provenance.COMPUTED_IN: "float32"}
    node.metadata_props.update(metadata)
    casts: dict[ir.Value, ir.Node] = {}
    for i, value in enumerate(node.inputs):
        if value is None or value.dtype not in ONNX_HALF:
            continue
        if value not in casts:
            name = f"{node.name}.input{i}"
            casts[value] = _cast(value, free_name(f"{name}.float32", taken), _FLOAT, free_name(name, taken), metadata)
            graph.insert_before(node, casts[value])
        node.replace_input_with(i, casts[value].outputs[0])
    for i, value in enumerate(node.outputs):
        if value.dtype in ONNX_HALF:
            wide, name = free_name(f"{value.name}.float32", taken), free_name(f"{node.name}.output{i}", taken)
            cast = _round_back(value, wide, name, metadata)
            graph.insert_after(node, cast)


def _round_back(value: ir.Value, raised: str, node_name: str, metadata: dict[str, str]) -> ir.Node:
    """The cast whose result has the name and the readers of ``value``, which goes by ``raised`` from now on."""
    assert value.dtype is not None
    cast = _cast(value, str(value.name), value.dtype, node_name, metadata)
    rounded = cast.outputs[0]
    rounded.metadata_props.update({**value.metadata_props, provenance.COMPUTED_IN: "float32"})
    value.replace_all_uses_with(rounded, replace_graph_outputs=True)
    cast.replace_input_with(0, value)
    value.name, value.type = raised, ir.TensorType(_FLOAT)
    value.metadata_props.clear()
    return cast


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
