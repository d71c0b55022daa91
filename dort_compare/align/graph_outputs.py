"""Where a model returns what its FX graph does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set

import onnx
import torch
from torch import fx

from dort_compare.align.provenance import values_of_fx_nodes
from dort_compare.backends.plain_views import base_of
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


def _sought(graph: fx.GraphModule, model: onnx.ModelProto) -> list[tuple[str, str | None]]:
    """The FX nodes that a model has to return, each with the value that stands for it, if any does."""
    stands = values_of_fx_nodes(model)
    return [(name, stands[name].name if name in stands else None) for name in _required(graph)]


def _required(graph: fx.GraphModule) -> list[str]:
    """Outputs and what they are views of, not what is only checked."""
    signature = Signature.of(graph)
    checked = {check.name for check in signature.checks}
    return [name for name in signature.computed if name not in checked]
