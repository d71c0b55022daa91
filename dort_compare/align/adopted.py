"""Another model in the place of one of ours: it learns what its values stand for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import onnx

from dort_compare import provenance
from dort_compare.align.clipped import clipped_by_quantization
from dort_compare.align.optimized import with_constants_made
from dort_compare.align.provenance import values_of_fx_nodes


def adopted(own: onnx.ModelProto, other: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of ``other`` whose values and nodes say which FX nodes of ``own`` they stand for, where that can be told.

    By metadata of its own; else by the name that a value has in ``own``, which ONNX Runtime's optimizers keep of the
    values that survive them; else, for the outputs of models that have equally many, by position. A value in between
    that has another dtype, in a model converted to it, stands for none. Types that ``other`` does not declare, as those
    of values that ONNX Runtime's optimizers add, are inferred where that can be; what was folded to a constant is made
    by a node.
    """
    model = typed(clipped_by_quantization(with_constants_made(other, own), own))
    computed = {name for node in model.graph.node for name in node.output if name}
    ours, theirs = _dtypes(typed(own)), _dtypes(model)
    _forget_other_dtypes(
        model, {fx_node: ours.get(value.name) for fx_node, value in values_of_fx_nodes(own).items()}, theirs
    )
    known = values_of_fx_nodes(model)
    spoken_for = {value.name for value in known.values()}
    by_position = _outputs_by_position(own, model)
    labels = {
        by_position.get(name, name): metadata
        for name, metadata in _labelled_values(own).items()
        if not known.keys() & metadata[provenance.FX_NODE].split()
    }
    outputs = {value.name for value in model.graph.output}
    for name in (labels.keys() & computed) - spoken_for:
        if name in outputs or theirs.get(name) in (None, ours.get(name)):
            _label(_value_info(model.graph, name), labels[name])
    made = {
        by_position.get(name, name): provenance.metadata_of(node)
        for node in own.graph.node
        for name in node.output
        if name
    }
    for node in model.graph.node:
        if provenance.FX_NODE not in provenance.metadata_of(node):
            found = (made.get(name) or labels.get(name) for name in node.output)
            _label(node, next(filter(None, found), {}))
    return model


def _forget_other_dtypes(
    model: onnx.ModelProto, ours: Mapping[str, int | None], theirs: Mapping[str, int | None]
) -> None:
    """Takes the metadata from values in between whose dtype is another than that of the FX node they were made for."""
    for value in model.graph.value_info:
        dtype = theirs.get(value.name)
        fx_nodes = provenance.metadata_of(value).get(provenance.FX_NODE, "").split()
        if dtype is not None and any(ours.get(fx_node, dtype) != dtype for fx_node in fx_nodes):
            del value.metadata_props[:]


def _outputs_by_position(own: onnx.ModelProto, other: onnx.ModelProto) -> dict[str, str]:
    """From the outputs of ``own`` that ``other`` does not know by name to those that stand in their place."""
    ours, theirs = ([value.name for value in model.graph.output] for model in (own, other))
    if len(ours) != len(theirs):
        return {}
    return {a: b for a, b in zip(ours, theirs, strict=True) if a not in theirs and b not in ours}


def typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model with the types that can be inferred."""
    with suppress(ValueError, onnx.shape_inference.InferenceError):  # beyond 2 GiB, or an operator contradicts itself
        return onnx.shape_inference.infer_shapes(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _dtypes(model: onnx.ModelProto) -> dict[str, int]:
    """The dtypes of the values, as far as they are declared."""
    values = (*model.graph.value_info, *model.graph.output)
    return {value.name: value.type.tensor_type.elem_type for value in values if value.type.tensor_type.elem_type}


def _labelled_values(model: onnx.ModelProto) -> dict[str, Mapping[str, str]]:
    """The metadata of the values that stand for FX nodes, by name."""
    labelled = {value.name for value in values_of_fx_nodes(model).values()}
    values = (*model.graph.value_info, *model.graph.output)
    return {value.name: provenance.metadata_of(value) for value in values if value.name in labelled}


def _value_info(graph: onnx.GraphProto, name: str) -> onnx.ValueInfoProto:
    known = next((value for value in (*graph.output, *graph.value_info) if value.name == name), None)
    return known if known is not None else graph.value_info.add(name=name)


def _label(owner: onnx.NodeProto | onnx.ValueInfoProto, metadata: Mapping[str, str]) -> None:
    """Writes the metadata, but for the dtype that the other model's nodes computed in."""
    for key, value in metadata.items():
        if key != provenance.COMPUTED_IN:
            owner.metadata_props.add(key=key, value=value)
