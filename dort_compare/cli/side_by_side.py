"""Two ONNX models of one graph, run on the graph's own inputs, value by value."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from dort_compare.align.models import align_models, labels, value_names
from dort_compare.backends import CompiledGraph
from dort_compare.measure.diff.side_by_side import ModelTrace, PairRow, pair_row
from dort_compare.runtime.providers import SessionSettings
from dort_compare.scalars import as_fed
from dort_compare.trace.onnx import initializers, onnx_values, optimized


def side_by_side(
    first: onnx.ModelProto, second: onnx.ModelProto, graph: CompiledGraph, optimize: bool
) -> Iterator[PairRow]:
    """A row for every input, initializer and node output of either model, paired by provenance.

    Both are fed the recorded inputs of ``graph``, by the names of its FX placeholders: in backward these are the saved
    activations and tangents. With ``optimize``, what ONNX Runtime makes of the models is run in their place.
    """
    first_labels, second_labels = labels(first), labels(second)
    first_trace, second_trace = _traced(first, graph, optimize), _traced(second, graph, optimize)
    pairs = align_models(first_trace.names, second_trace.names, first_labels, second_labels)
    return (pair_row(pair.first, pair.second, first_trace, second_trace) for pair in pairs)


def _traced(model: onnx.ModelProto, graph: CompiledGraph, optimize: bool) -> ModelTrace:
    providers = graph.program.providers
    if optimize:
        model = optimized(model, SessionSettings(), providers)
    inputs = graph.named_inputs()
    tensors = {value.name: as_fed(inputs[value.name]) for value in model.graph.input}
    tensors |= initializers(model)
    tensors |= onnx_values(model, inputs, providers)
    return ModelTrace(model, value_names(model), tensors)
