"""Walks an FX graph and writes the ONNX model that computes the same values."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import from_torch_dtype
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from dort_compare import provenance
from dort_compare.checks import check_of, traced_by
from dort_compare.dtypes import HALF, in_parts, is_complex_tensor
from dort_compare.errors import LoweringError, MissingLoweringError, UnsupportedGraphError
from dort_compare.fx_graph import attribute_of, returned_by
from dort_compare.lowering.builder import Builder
from dort_compare.lowering.foreign import foreign
from dort_compare.lowering.lowered import Lowered
from dort_compare.lowering.registry import registered
from dort_compare.provenance import Phase, Provenance
from dort_compare.scalars import traced_dtype
from dort_compare.signature import Signature

_IR_VERSION = 10
"""The oldest that holds metadata on values, so that every runtime of the last years reads the models."""


def lower(graph_module: fx.GraphModule, phase: Phase, target_opset: int) -> Lowered:
    """Lowers one AOTAutograd graph.

    Every ONNX value that stands for an FX node bears its name, dtype, shape and provenance.

    Raises MissingLoweringError for an ATen overload that the registry does not know, UnsupportedGraphError for
    an argument that ONNX cannot express, LoweringError where a lowering contradicts the dtype or shape torch traced.
    """
    signature = Signature.of(graph_module)
    with unset_fake_temporarily():  # AOTAutograd compiles under its fake mode, the constants of a model are real
        model = Walk(graph_module, phase, Builder.of_new_graph(phase, target_opset)).model(signature)
    return Lowered(model, signature, phase)


class Walk:
    """Writes the ONNX nodes of one FX graph, an FX node at a time; ``values`` holds what each one became."""

    def __init__(self, graph_module: fx.GraphModule, phase: Phase, builder: Builder) -> None:
        self.graph_module = graph_module
        self.phase = phase
        self.builder = builder
        self.graph = builder.graph
        self.values: dict[fx.Node, Any] = {}
        self.lowerings = registered()

    def model(self, signature: Signature) -> ir.Model:
        self._refuse_missing()
        for node in self.graph_module.graph.nodes:
            if node.op != "output":
                self.visit(node)
        by_name = {node.name: value for node, value in self.values.items()}
        self.graph.outputs.extend(by_name[name] for name in signature.computed)
        return ir.Model(self.graph, ir_version=_IR_VERSION, producer_name=provenance.PRODUCER)

    def visit(self, node: fx.Node) -> None:
        """Writes what ``node`` computes. Raises the errors of ``lower``."""
        visit = {"placeholder": self._placeholder, "get_attr": self._attribute, "call_function": self._call}
        if node.op not in visit:
            raise UnsupportedGraphError(f"FX node {node.name} is a {node.op}; AOTAutograd graphs hold none")
        if found := foreign(node):
            does, kind = found
            where, reason = provenance.described(node), kind if does == "is" else f"it {does} {kind}"
            raise UnsupportedGraphError(f"{where} {does} {kind}, which no ONNX graph of ours holds", reason)
        visit[node.op](node)

    def _refuse_missing(self) -> None:
        """Names everything without a lowering at once, before any work is done."""
        called = [node for node in self.graph_module.graph.nodes if node.op == "call_function"]
        missing = [node for node in called if node.target is not operator.getitem and node.target not in self.lowerings]
        if missing:
            others = {provenance.target_name(node) for node in missing} - {provenance.target_name(missing[0])}
            first = missing[0]
            raise MissingLoweringError(
                provenance.target_name(first), first.name, provenance.source_line(first), sorted(others)
            )

    def _placeholder(self, node: fx.Node) -> None:
        value = ir.Value(name=node.name)
        self.stamp(value, node, node.meta["val"])
        self.graph.inputs.append(value)
        self.values[node] = value

    def _attribute(self, node: fx.Node) -> None:
        constant = attribute_of(node)
        if isinstance(constant, fx.GraphModule):
            self.values[node] = functools.partial(_results, self, constant)
            return
        if not isinstance(constant, torch.Tensor):
            raise MissingLoweringError(f"a nested {type(constant).__name__}", node.name, provenance.source_line(node))
        node.meta.setdefault("val", constant)
        value = self.builder.initializer_of(in_parts(constant), self._name_of_constant(node))
        self.stamp(value, node, constant)
        self.values[node] = value

    def _call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            self.values[node] = self._element(node, *node.args)
            return
        function = self.lowerings[node.target]  # type: ignore[index]
        self._enter(node)
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.values.get)
        result = function(self.builder, *args, **kwargs)
        if isinstance(result, tuple):
            self.values[node] = tuple(value and self._own(value) for value in result)
        else:
            meta = traced_by(node) if check_of(node) else node.meta["val"]
            self.values[node] = self._named(node, self._own(result), meta)

    def _element(self, node: fx.Node, producer: Any, position: Any) -> ir.Value:
        """One value of an op that returns several; it takes the name of the ``getitem`` that asks for it first."""
        value = self.values[producer][position]
        if value is None:
            raise UnsupportedGraphError(
                f"result {position} of {provenance.target_name(producer)} (FX node {producer.name}) is not computed"
            )
        if "val" in value.meta:
            self._enter(node)
            value = self.builder.Identity(value)
        return self._named(node, value, node.meta["val"])

    def _own(self, value: ir.Value) -> ir.Value:
        """A value of this FX node alone: one that a lowering merely hands on gets a name of its own."""
        return value if self.builder.made(value) else self.builder.Identity(value)

    def _named(self, node: fx.Node, value: ir.Value, meta: Any) -> ir.Value:
        self._check(value, node, meta)
        self.stamp(value, node, meta)
        producer = value.producer()
        if producer is not None and provenance.COMPUTED_IN in producer.metadata_props:
            value.metadata_props[provenance.COMPUTED_IN] = producer.metadata_props[provenance.COMPUTED_IN]
        return value

    def stamp(self, value: ir.Value, node: fx.Node, meta: Any) -> None:
        """Writes onto a value what torch traced: dtype, shape, provenance. Of what is complex those of its parts."""
        meta = in_parts(meta)
        value.type = ir.TensorType(_dtype(meta))
        value.shape = _shape(meta)
        value.meta["val"] = meta
        self._identify(value, node)

    def _enter(self, node: fx.Node) -> None:
        self.builder.enter(node, Provenance.of(node, self.phase))

    def _identify(self, value: ir.Value, node: fx.Node) -> None:
        """Says which FX node a value stands for; the parts of a complex tensor stand for none."""
        value.name = node.name
        if not is_complex_tensor(node.meta.get("val")):
            value.metadata_props.update(Provenance.of(node, self.phase).metadata())

    def _name_of_constant(self, node: fx.Node) -> str:
        return node.name

    def _check(self, value: ir.Value, node: fx.Node, meta: Any) -> None:
        meta = in_parts(meta)
        expected, shape = _dtype(meta), _shape(meta)
        if value.dtype is not None and value.dtype != expected:
            raise LoweringError(f"{provenance.described(node)} became {value.dtype}, torch computes {expected}")
        if value.shape is not None and not _compatible(value.shape, shape):
            raise LoweringError(f"{provenance.described(node)} became shape {value.shape}, torch computes {shape}")


class _InnerWalk(Walk):
    """Writes a graph that an FX node takes, a branch say, as a part of that; its values stand for no FX node."""

    def __init__(self, graph_module: fx.GraphModule, around: Walk, operands: Sequence[Any]) -> None:
        super().__init__(graph_module, around.phase, around.builder)
        self._provenance = self.builder.entered[1]
        self.values.update(zip(graph_module.graph.find_nodes(op="placeholder"), operands, strict=True))
        for node, value in self.values.items():
            if isinstance(value, ir.Value) and "val" not in value.meta:
                self.stamp(value, node, node.meta["val"])

    def results(self) -> list[Any]:
        """What the graph returns: ONNX values, and None."""
        try:
            self._refuse_missing()
        except MissingLoweringError as problem:
            problem.reason = f"no lowering for {problem.target} in a graph that it takes"
            raise
        for node in self.graph_module.graph.nodes:
            if node.op not in ("placeholder", "output"):
                self.visit(node)
        returned = returned_by(self.graph_module.graph)
        return [fx.map_arg(each, self.values.__getitem__) for each in returned]

    def visit(self, node: fx.Node) -> None:
        """Raises UnsupportedGraphError for a check too, which the runtime reads of whole graphs alone."""
        if check_of(node):
            raise self.builder.unsupported("a check in a graph that it takes")
        super().visit(node)

    def stamp(self, value: ir.Value, node: fx.Node, meta: Any) -> None:
        """Raises UnsupportedGraphError for half precision: nobody asks ONNX Runtime for its kernels in here."""
        super().stamp(value, node, meta)
        if traced_dtype(meta) in HALF:
            raise self.builder.unsupported("half precision in a graph that it takes")

    def _enter(self, node: fx.Node) -> None:
        self.builder.enter(node, self._provenance)

    def _identify(self, value: ir.Value, node: fx.Node) -> None:
        pass

    def _name_of_constant(self, node: fx.Node) -> str:
        return self.builder.new_name(node.name)


def _results(around: Walk, graph_module: fx.GraphModule, *operands: Any) -> list[Any]:
    """What a graph that the current FX node takes computes of its operands, written where the builder writes."""
    entered = around.builder.entered
    try:
        return _InnerWalk(graph_module, around, operands).results()
    finally:
        around.builder.enter(*entered)


def _dtype(meta: Any) -> ir.DataType:
    return from_torch_dtype(traced_dtype(meta))


def _shape(meta: Any) -> ir.Shape:
    sizes = meta.shape if isinstance(meta, torch.Tensor) else ()
    return ir.Shape([size if isinstance(size, int) else str(size) for size in sizes])


def _compatible(inferred: ir.Shape, traced: ir.Shape) -> bool:
    if len(inferred) != len(traced):
        return False
    pairs = zip(inferred.dims, traced.dims, strict=True)
    return all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))
