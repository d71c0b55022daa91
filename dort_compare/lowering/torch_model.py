"""The model that PyTorch's exporter makes, under our names and with our provenance."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

import onnx_ir as ir
import onnx_ir.passes.common as passes
import torch
from onnx_ir.tensor_adapters import from_torch_dtype
from torch import fx

from dort_compare import provenance
from dort_compare.lowering.torch_program import fx_name
from dort_compare.provenance import NameAuthority, Phase, Provenance
from dort_compare.signature import Signature


class Exported:
    """A model as torch has exported it, of a graph that was traced in a ``phase``."""

    def __init__(self, graph_module: fx.GraphModule, phase: Phase, exported: torch.onnx.ONNXProgram) -> None:
        self.fx_nodes = {node.name: node for node in graph_module.graph.nodes}
        self.phase = phase
        assert exported.exported_program is not None
        self.program = exported.exported_program
        self.model = exported.model
        self.graph = self.model.graph

    def finished(self, names: Sequence[str], signature: Signature) -> ir.Model:
        """The finished model; ``names`` are the FX nodes whose values the exported model returns, in order."""
        fx_names = _fx_names(self.program)
        for node in self.graph.all_nodes():
            self._stamp(node, fx_names.get(_program_node(node)))
        inputs = dict(zip((i.name for i in signature.inputs), self.graph.inputs, strict=True))
        returned = list(zip(names, self.graph.outputs, strict=True))
        self.graph.outputs.clear()
        made = self._values(returned, set(inputs.values()), signature.computed)
        self.graph.outputs.extend(made.values())  # views that torch makes stay too, for whoever compares values
        passes.RemoveUnusedNodesPass()(self.model)
        values = inputs | made
        self.graph.outputs[:] = [values[name] for name in signature.computed]
        _refuse_racy_scatter(self.graph)
        self._name(values)
        self.graph.metadata_props.clear()
        self.graph.name = self.phase
        self.model.metadata_props[provenance.PHASE] = self.phase
        return passes.ShapeInferencePass(strict_mode=False)(self.model).model

    def _values(
        self, returned: Sequence[tuple[str, ir.Value]], taken: set[ir.Value], computed: Collection[str]
    ) -> dict[str, ir.Value]:
        """One value per FX node. Where torch made none of its own, a copy if the node is an output, else no value."""
        values: dict[str, ir.Value] = {}
        for name, exported in returned:
            made = self._as_traced(exported, name)
            value = self._copy(made, name) if made in taken and name in computed else made
            if value not in taken:
                values[name] = value
                taken.add(value)
        return values

    def _as_traced(self, value: ir.Value, name: str) -> ir.Value:
        """A value in the dtype of its FX node: torch names the one before the cast that rounds to half precision."""
        traced = self.fx_nodes[name].meta.get("val")
        if not isinstance(traced, torch.Tensor):
            return value
        dtype = from_torch_dtype(traced.dtype)
        if value.dtype in (None, dtype):
            return value
        casts = (node for node in value.consumers() if node.op_type == "Cast" and node.outputs[0].dtype == dtype)
        own = next((node for node in casts if node.metadata_props.get(provenance.FX_NODE) == name), None)
        if own is not None:
            return own.outputs[0]
        return self._append(ir.node("Cast", [value], {"to": dtype}), name, dtype, value.shape)

    def _copy(self, value: ir.Value, name: str) -> ir.Value:
        assert value.dtype is not None
        return self._append(ir.node("Identity", [value]), name, value.dtype, value.shape)

    def _append(self, node: ir.Node, name: str, dtype: ir.DataType, shape: ir.Shape | None) -> ir.Value:
        (value,) = node.outputs
        value.type, value.shape = ir.TensorType(dtype), shape
        self._stamp(node, name)
        self.graph.append(node)
        return value

    def _stamp(self, thing: ir.Node | ir.Value, fx_node: str | None) -> None:
        """Replaces what torch wrote into the metadata by the provenance, where it is known."""
        thing.metadata_props.clear()
        if fx_node is not None:
            thing.metadata_props.update(Provenance.of(self.fx_nodes[fx_node], self.phase).metadata())

    def _name(self, values: dict[str, ir.Value]) -> None:
        """FX names for the values of FX nodes; all others get names that hold a dot and so meet none of them."""
        names, node_names = NameAuthority(), NameAuthority()
        final = set(values.values())
        for value in (value for value in _all_values(self.graph) if value not in final):
            producer = value.producer()
            value.metadata_props.clear()
            value.name = names.mint(*_origin(producer)) if producer else names.mint("const", "torch")
        for name, value in values.items():
            value.name = name
            self._stamp(value, name)
        for node in self.graph.all_nodes():
            node.name = node_names.mint(*_origin(node))


def _fx_names(program: torch.export.ExportedProgram) -> dict[str, str | None]:
    """From node names of the program to FX nodes; none for a name that several of its nested graphs use."""
    names: dict[str, str | None] = {}
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
            names[node.name] = None if node.name in names else fx_name(node)
    return names


def _program_node(node: ir.Node) -> str:
    """The node of the exported program that torch says it made an ONNX node for; "" where it says nothing."""
    scopes = node.metadata_props.get("pkg.torch.onnx.name_scopes", "['']")
    return str(ast.literal_eval(scopes)[-1])


def _origin(node: ir.Node) -> tuple[str, str]:
    return node.metadata_props.get(provenance.FX_NODE, "torch"), node.op_type


def _all_values(graph: ir.Graph) -> Iterator[ir.Value]:
    for each in (graph, *graph.subgraphs()):
        yield from each.inputs
        yield from list(each.initializers.values())
    for node in graph.all_nodes():
        yield from node.outputs


def _refuse_racy_scatter(graph: ir.Graph) -> None:
    """ONNX Runtime's CPU ScatterND adds repeated indices in several threads at once, without a lock."""
    for node in graph.all_nodes():
        if node.op_type == "ScatterND" and node.attributes.get_string("reduction", "none") != "none":
            fx_node = node.metadata_props.get(provenance.ATEN_TARGET, "an op")
            raise ValueError(f"{fx_node} becomes ScatterND with a reduction, a data race in ONNX Runtime")
