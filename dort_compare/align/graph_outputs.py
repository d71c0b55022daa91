"""Where a model returns what its FX graph does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType

import onnx
import torch
from torch import fx

from dort_compare.align.provenance import values_of_fx_nodes
from dort_compare.align.tensor_types import in_dtype, is_alike, sizes
from dort_compare.backends.plain_views import base_of
from dort_compare.fx_graph import returned_by
from dort_compare.protos import copy_of
from dort_compare.signature import Signature


def places(graph: fx.GraphModule, model: onnx.ModelProto) -> Mapping[str, int]:
    """By FX node that a model of ``graph`` has to return, in the graph's order, its place among the model's outputs.

    Those of which no place is known are left out.
    """
    at = {value.name: i for i, value in enumerate(model.graph.output)}
    return {fx_node: at[name or fx_node] for fx_node, name in _sought(graph, model) if (name or fx_node) in at}


def unreturned(graph: fx.GraphModule, model: onnx.ModelProto) -> list[str]:
    """The FX nodes that a model has to return and does not: it computes them, or has too few outputs."""
    returned, sought = {value.name for value in model.graph.output}, _sought(graph, model)
    too_few = len(model.graph.output) < len(sought)
    return [fx_node for fx_node, name in sought if (name or fx_node) not in returned and (too_few or name)]


def returned_shapes(graph: fx.GraphModule) -> Mapping[str, Set[tuple[int, ...]]]:
    """By FX node, the shapes of what a graph returns that shows all its elements, in their order, in another shape.

    Our models return the value itself, those of other tools what the graph does.
    """
    found = defaultdict[str, set[tuple[int, ...]]](set)
    for node in graph.graph.output_node().all_input_nodes:
        base = base_of(node)
        if base is not None and base is not node and _has_all_of(node.meta["val"], base.meta["val"]):
            found[base.name].add(tuple(node.meta["val"].shape))
    return found


def _has_all_of(view: torch.Tensor, base: torch.Tensor) -> bool:
    return view.numel() == base.numel() and view.is_contiguous() and base.is_contiguous()


def returning_views(own: onnx.ModelProto, other: onnx.ModelProto, graph: fx.GraphModule) -> onnx.ModelProto:
    """``own``, the model of ``graph``, with outputs that are what the graph returns, where those of ``other`` are that.

    Our models return what torch makes its views of, and what it checks, those of other tools what the graph does.
    """
    values = {value.name: value for value in (*own.graph.value_info, *own.graph.output)}
    stands = {fx_node: values[value.name] for fx_node, value in values_of_fx_nodes(own).items()}
    nodes = [node for node in returned_by(graph.graph) if isinstance(node, fx.Node)]
    returned = [stands[node.name] for node in nodes if node.name in stands]
    theirs = other.graph.output
    if len(returned) < len(nodes) or not _are_those(theirs, returned):
        return own
    shapes = {stands[fx_node].name: found for fx_node, found in returned_shapes(graph).items() if fx_node in stands}
    is_told = [value.name for value in theirs] == [value.name for value in returned]
    if not is_told and _are_those(theirs, own.graph.output, shapes):
        return own
    copy = copy_of(own)
    copy.graph.value_info.extend(copy.graph.output)
    del copy.graph.output[:]
    copy.graph.output.extend(returned)
    return copy


def _are_those(
    theirs: Sequence[onnx.ValueInfoProto],
    ours: Sequence[onnx.ValueInfoProto],
    shapes: Mapping[str, Set[tuple[int | None, ...]]] = MappingProxyType({}),
) -> bool:
    """Whether outputs may stand for these values, in this order, in whatever dtype, or in other ``shapes``, by name."""
    return len(theirs) == len(ours) and all(
        is_alike(in_dtype(there.type.tensor_type, here.type.tensor_type.elem_type), here.type.tensor_type)
        or tuple(sizes(there.type.tensor_type)) in shapes.get(here.name, ())
        for there, here in zip(theirs, ours, strict=True)
    )


def _sought(graph: fx.GraphModule, model: onnx.ModelProto) -> list[tuple[str, str | None]]:
    """The FX nodes that a model has to return, each with the value that stands for it, if any does: outputs, or what
    they are views of, not what is only checked."""
    stands = {fx_node: value.name for fx_node, value in values_of_fx_nodes(model).items()}
    returned = {value.name for value in model.graph.output}
    found: dict[str, str | None] = {}
    for name, view in _required(graph):
        fx_node = view if stands.get(view) in returned and stands.get(name) not in returned else name
        found[fx_node] = stands.get(fx_node)
    return list(found.items())


def _required(graph: fx.GraphModule) -> list[tuple[str, str]]:
    """What a graph computes for its outputs, each with the output, which may be a view of it."""
    signature = Signature.of(graph)
    pairs = ((output.base if output.view else output, output) for output in signature.outputs)
    return [
        (base.name, output.name)
        for base, output in pairs
        if base is not None and base.name and output.name and base.name in signature.computed
    ]
