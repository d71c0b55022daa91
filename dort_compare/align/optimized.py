"""A model that ONNX Runtime has optimized, aligned with the FX nodes of the model that it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

import onnx
import torch

from dort_compare import provenance
from dort_compare.align.provenance import OnnxValue, node_name, values_of_fx_nodes
from dort_compare.align.tensor_types import is_alike, types_of
from dort_compare.protos import copy_of, replace_nodes
from dort_compare.trace.parts import Parts

_FOLDED = "/folded"


@dataclass(frozen=True)
class OptimizedModel:
    """``model``, in which a node makes what was folded to a constant; ``values`` by FX node, as far as they survived.

    ``fused_away`` holds the FX nodes that had a value before and have none now: a fusion went over them.
    """

    model: onnx.ModelProto
    values: Mapping[str, OnnxValue]
    fused_away: tuple[str, ...]


def align_optimized(original: onnx.ModelProto, optimized: onnx.ModelProto) -> OptimizedModel:
    """Finds the values of ``optimized`` by the names that they bear in ``original``, whose metadata say what they are.

    A name survives where dtype and shape are what they were; what an optimizer gave another layout is another value,
    but for a result of the model, which always survives.
    """
    stands = values_of_fx_nodes(original)
    model = with_constants_made(optimized, original)
    before, after = _parts(original), _parts(model)
    names = surviving(before, after, [value.name for value in stands.values()])
    known = names - {value.name for value in stands.values() if value.opaque}
    regions = {name: Region.of(name, known, before, after) for name in names}
    values = {fx_node: regions[v.name].describe(v) for fx_node, v in stands.items() if v.name in names}
    return OptimizedModel(model, values, tuple(fx_node for fx_node in stands if fx_node not in values))


@dataclass(frozen=True)
class Region:
    """The nodes that make a value from the nearest survivors, and what they took the place of.

    ``is_same`` says that they took the place of nothing; else ``fx_nodes`` are those that the original nodes were made
    for, as far as these say.
    """

    nodes: tuple[onnx.NodeProto, ...]
    is_same: bool
    fx_nodes: tuple[str, ...]

    @classmethod
    def of(cls, name: str, known: Set[str], before: Parts, after: Parts) -> Region:
        """The region of the value ``name``, of which the values ``known`` are the operands."""
        nodes = after.between([name], known.__contains__)
        reads = {read for i in nodes for read in after.reads[i] if read in known}
        replaced = [before.nodes[i] for i in before.between([name], reads.__contains__)]
        made = tuple(after.nodes[i] for i in nodes)
        is_same = [_call(node) for node in made] == [_call(node) for node in replaced]
        fx_nodes = () if is_same else tuple(dict.fromkeys(fx for node in replaced for fx in _fx_nodes(node)))
        return cls(made, is_same, fx_nodes)

    @property
    def op_types(self) -> tuple[str, ...]:
        return tuple(node.op_type for node in self.nodes)

    def describe(self, value: OnnxValue) -> OnnxValue:
        """``value``, which the original nodes made, as it is made now."""
        origin = value.provenance
        if self.fx_nodes:
            origin = replace(origin, fx_node=" ".join(self.fx_nodes))
        nodes = tuple(node_name(node) for node in self.nodes)
        return replace(value, provenance=origin, op_types=self.op_types, nodes=nodes, fused=self.fx_nodes)


def surviving(before: Parts, after: Parts, names: list[str]) -> set[str]:
    """Those of ``names`` that both models compute, alike in dtype and shape, and in the same order.

    A result of the model survives in any shape: that it has changed is then what departs.
    Where two equal values became one, an earlier one may read what is made later: that one is not taken for a survivor.
    """
    typed, now = types_of(before.model), types_of(after.model)
    made = [name for name in names if name in after.producers and name in before.producers]
    results = {result.name for result in before.model.graph.output}
    kept = {name for name in made if name in results or is_alike(typed.get(name), now.get(name))}
    while True:
        too_late = {
            read
            for name in kept
            for i in after.between([name], kept.__contains__)
            for read in after.reads[i]
            if read in kept and before.producers[read] > before.producers[name]
        }
        if not too_late:
            return kept
        kept -= too_late


def with_constants_made(optimized: onnx.ModelProto, original: onnx.ModelProto) -> onnx.ModelProto:
    """``optimized`` with a node for each value that ``original`` computes and that became an initializer."""
    computed = {name for node in original.graph.node for name in node.output}
    folded = [tensor for tensor in optimized.graph.initializer if tensor.name in computed]
    if not folded:
        return optimized
    model = copy_of(optimized)
    nodes = []
    for tensor in model.graph.initializer:
        if tensor.name in computed:
            nodes.append(
                onnx.helper.make_node("Identity", [tensor.name + _FOLDED], [tensor.name], tensor.name + _FOLDED)
            )
            tensor.name += _FOLDED
    nodes.extend(model.graph.node)
    replace_nodes(model.graph, nodes)
    return model


def _parts(model: onnx.ModelProto) -> Parts:
    return Parts(model, [], torch.device("cpu"))


def _call(node: onnx.NodeProto) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    return node.domain, node.op_type, tuple(node.input), tuple(node.output)


def _fx_nodes(node: onnx.NodeProto) -> list[str]:
    return provenance.metadata_of(node).get(provenance.FX_NODE, "").split()
