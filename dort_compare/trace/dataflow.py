"""An ONNX model as dataflow: nodes, what they read and make, whatever the names are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import onnx

from dort_compare.captures import bodies, captured
from dort_compare.errors import UsageError
from dort_compare.trace.functions import inlined
from dort_compare.trace.opaque import opaque_values
from dort_compare.trace.ordered import in_order
from dort_compare.trace.schemas import plain_domain

_CONSTANT_LISTS = {"value_float": 1, "value_floats": 1, "value_int": 7, "value_ints": 7}


@dataclass(frozen=True, eq=False)
class Node:
    """A node; ``operands`` are its inputs by position ("" where left out), then what its bodies read from outside."""

    index: int
    proto: onnx.NodeProto
    operands: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def has_body(self) -> bool:
        return next(bodies(self.proto), None) is not None


@dataclass(eq=False)
class Dataflow:
    """A model, its local functions inlined, its ``Constant`` nodes among the constants.

    nodes      in an order in which they can run
    constants  initializers and constants by name
    producer   by value name, the node that makes it and which of its results it is
    readers    by value name, the nodes that read it and as which operand
    opaque     values that are no tensors for torch: sequences, optionals, maps, strings, numbers of few bits
    calls      names of local functions that could not be inlined
    """

    title: str
    proto: onnx.ModelProto
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    inputs: dict[str, onnx.ValueInfoProto] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    producer: dict[str, tuple[Node, int]] = field(default_factory=dict)
    readers: dict[str, list[tuple[Node, int]]] = field(default_factory=dict)
    opaque: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, model: onnx.ModelProto, title: str) -> Dataflow:
        """Reads a model; ``title`` names it in errors. Raises UsageError where it is no legal graph."""
        flow = cls(title, in_order(inlined(model, title)))
        graph = flow.proto.graph
        if graph.sparse_initializer:
            raise UsageError(f"{title} holds sparse initializers, which are not read; make them dense")
        for tensor in graph.initializer:
            flow._add_constant(tensor.name, tensor)
        for value in graph.input:
            if not value.name:
                raise UsageError(f"{title} takes an input without a name; it is no valid model")
            if value.name not in flow.constants:
                flow.inputs[value.name] = value
        flow.opaque = opaque_values(flow.proto)
        for proto in graph.node:
            flow._add(proto)
        flow.outputs = [value.name for value in graph.output]
        flow._check_known(flow.outputs, "outputs")
        if not flow.outputs:
            is_graph = flow.nodes or flow.inputs or flow.constants
            what = "returns nothing; give its graph outputs" if is_graph else "holds no graph; give an ONNX model"
            raise UsageError(f"{title} {what}")
        flow.calls = sorted({f.name for f in flow.proto.functions})
        return flow

    def values(self) -> Iterator[str]:
        """Every value: inputs, constants, results in order of execution."""
        yield from (*self.inputs, *self.constants)
        yield from (name for node in self.nodes for name in node.results if name)

    def _add(self, proto: onnx.NodeProto) -> None:
        if any(attribute.HasField("sparse_tensor") for attribute in proto.attribute):
            raise UsageError(f"{self.title} holds sparse constants, which are not read; make them dense")
        if not proto.output:
            raise UsageError(f"{self.title} has a node {proto.name!r} ({proto.op_type}) without outputs; remove it")
        constant = _constant(proto)
        if constant is not None:
            self._add_constant(proto.output[0], constant)
            return
        outside = dict.fromkeys(name for body in bodies(proto) for name in captured(body))
        operands = (*proto.input, *(name for name in outside if name not in proto.input))
        self._check_known(filter(None, operands), f"node {proto.name!r} ({proto.op_type})")
        node = Node(len(self.nodes), proto, operands, tuple(proto.output))
        self.nodes.append(node)
        for slot, name in enumerate(node.results):
            if name:
                self._check_new(name)
                self.producer[name] = (node, slot)
        for slot, name in enumerate(operands):
            if name:
                self.readers.setdefault(name, []).append((node, slot))

    def _add_constant(self, name: str, tensor: onnx.TensorProto) -> None:
        self._check_new(name)
        self.constants[name] = tensor

    def _check_new(self, name: str) -> None:
        if name in self.producer or name in self.constants or name in self.inputs:
            raise UsageError(f"{self.title} makes {name!r} twice; it is no valid model")

    def _check_known(self, names: Iterable[str], reader: str) -> None:
        for name in names:
            if name not in self.producer and name not in self.constants and name not in self.inputs:
                raise UsageError(
                    f"{self.title}: {reader} reads {name!r}, which nothing before it makes; it is no valid model"
                )

    def tensors_of(self, node: Node) -> Iterator[str]:
        """The results of a node that are numeric tensors."""
        return (name for name in node.results if name and name not in self.opaque)

    def behind(self, names: Iterable[str]) -> set[str]:
        """The results that depend on values, directly or not."""
        found: set[str] = set()
        todo = list(names)
        while todo:
            new = {name for node, _ in self.readers.get(todo.pop(), ()) for name in node.results} - found
            found |= new
            todo.extend(new)
        return found

    def with_opaque(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes and those that make what is no tensor for them, in order: such values live in one session only."""
        found = {node.index: node for node in nodes}
        todo = list(nodes)
        while todo:
            for name in todo.pop().operands:
                if name in self.opaque and name in self.producer:
                    maker, _ = self.producer[name]
                    if maker.index not in found:
                        found[maker.index] = maker
                        todo.append(maker)
        return [found[i] for i in sorted(found)]

    def reads(self, node: Node) -> set[str]:
        """The tensors that running ``node`` takes, those behind its opaque operands included; constants left out."""
        return {
            name
            for each in self.with_opaque([node])
            for name in each.operands
            if name and name not in self.opaque and name not in self.constants
        }


def _constant(proto: onnx.NodeProto) -> onnx.TensorProto | None:
    if proto.op_type != "Constant" or plain_domain(proto.domain) or len(proto.attribute) != 1:
        return None
    attribute = proto.attribute[0]
    if attribute.name == "value":
        return attribute.t
    if attribute.name not in _CONSTANT_LISTS:
        return None
    value = onnx.helper.get_attribute_value(attribute)
    many = isinstance(value, (list, tuple))
    values = list(value) if many else [value]
    return onnx.helper.make_tensor("", _CONSTANT_LISTS[attribute.name], [len(values)] if many else [], values)
