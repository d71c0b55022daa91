"""Where a model returns what its FX graph does."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from torch import fx

from dort_compare.align.provenance import values_of_fx_nodes
from dort_compare.signature import Signature


def places(graph: fx.GraphModule, model: onnx.ModelProto) -> Mapping[str, int]:
    """By FX node that a model of ``graph`` has to return, in the graph's order, its place among the model's outputs.

    Those of which no place is known are left out.
    """
    at = {value.name: i for i, value in enumerate(model.graph.output)}
    stands = values_of_fx_nodes(model)
    names = {name: stands[name].name if name in stands else name for name in _required(graph)}
    return {fx_node: at[name] for fx_node, name in names.items() if name in at}


def unreturned(graph: fx.GraphModule, model: onnx.ModelProto) -> list[str]:
    """The FX nodes that a model has to return and does not: it computes them, or has too few outputs."""
    required, known, stands = _required(graph), places(graph, model), values_of_fx_nodes(model)
    too_few = len(model.graph.output) < len(required)
    return [name for name in required if name not in known and (too_few or name in stands)]


def _required(graph: fx.GraphModule) -> list[str]:
    """Outputs and what they are views of, not what is only checked."""
    signature = Signature.of(graph)
    checked = {check.name for check in signature.checks}
    return [name for name in signature.computed if name not in checked]
