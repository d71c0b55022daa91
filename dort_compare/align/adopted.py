"""Another model in the place of one of ours: it learns what its values stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from types import MappingProxyType

import onnx

from dort_compare import provenance
from dort_compare.align.clipped import clipped_by_quantization
from dort_compare.align.converted import as_computed, compare_in_ours, is_converted, is_held_coarser
from dort_compare.align.inserted import Change
from dort_compare.align.made_alike import made_alike
from dort_compare.align.optimized import with_constants_made
from dort_compare.align.provenance import values_of_fx_nodes
from dort_compare.align.reshaped import reshape
from dort_compare.align.tensor_types import Type, are_merged, in_dtype, is_alike, is_static, sizes, types_of
from dort_compare.protos import copy_of

Fits = Callable[[str, Type | None], bool]
"""Whether a value of another model, of that name, may be one of ours of that type."""
Shapes = Mapping[str, Set[tuple[int, ...]]]
"""By FX node, in which other shapes the graph returns it."""


def adopted(own: onnx.ModelProto, other: onnx.ModelProto, shapes: Shapes = MappingProxyType({})) -> onnx.ModelProto:
    """A copy of ``other`` whose values and nodes say which FX nodes of ``own`` they stand for, where that can be told.

    By metadata of its own; else by the name that a value has in ``own``, which optimizers keep of the values that
    survive them; else, for the outputs of models that have equally many, by position. A value in between that has
    another shape stands for none, unless it is made as ours is; but where the shape is another as neighbouring axes are
    one, as optimizers leave them that move a ``Reshape``, it is made in ours. So is one in a coarser dtype, and an
    input, in a model converted to that; in one that is not, a value in between that has another dtype stands for none.
    An output in one of the ``shapes`` in which the graph returns the value of an FX node is made in ours. Types that
    ``other`` does not declare, as those of values that ONNX Runtime's optimizers add, are inferred where that can be;
    what was folded to a constant is made by a node.
    """
    model = typed(clipped_by_quantization(with_constants_made(other, own), own))
    ours, theirs = types_of(typed(own)), _types(model)
    stands = values_of_fx_nodes(own)
    expected = {fx_node: ours[value.name] for fx_node, value in stands.items() if value.name in ours}
    _forget_copies(model, {fx_node: value.name for fx_node, value in stands.items()})
    by_position = _outputs_by_position(own, model)
    computed = as_computed(own, ours)
    wanted = {by_position.get(name, name): kind for name, kind in computed.items()}
    wanted |= {v.name: computed[stands[fx].name] for fx, v in values_of_fx_nodes(model).items() if fx in expected}
    converted = is_converted(model, theirs, wanted)
    may_be = _may_be_coarser if converted else _may_stand
    edited = made_alike(own, model, ours, theirs)
    fits: Fits = lambda name, kind: name in edited or may_be(theirs.get(name), kind)  # noqa: E731
    _forget_other_types(model, expected, fits)
    _label_by_name(model, own, by_position, lambda name: fits(name, ours.get(name)))
    if converted:
        inputs = {value.name: value.type.tensor_type for value in own.graph.input}
        theirs = compare_in_ours(model, expected, inputs, theirs)
    if others := _of_other_shapes(model, expected, theirs, shapes):
        reshape(model, others)
    return model


def _label_by_name(
    model: onnx.ModelProto, own: onnx.ModelProto, by_position: Mapping[str, str], fits: Callable[[str], bool]
) -> None:
    """Gives values and nodes the metadata of those in ``own`` that have their names, or an output's place."""
    computed = {name for node in model.graph.node for name in node.output if name}
    known = values_of_fx_nodes(model)
    labels = {
        by_position.get(name, name): metadata
        for name, metadata in _labelled_values(own).items()
        if not known.keys() & metadata[provenance.FX_NODE].split()
    }
    outputs = {value.name for value in model.graph.output}
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    named = {value.name for value in known.values()}
    for name in labels.keys() & computed:
        if name not in outputs and not fits(name):
            continue
        if name in named:
            _add_fx_nodes(declared[name], labels[name])
        else:
            _label(declared.get(name) or model.graph.value_info.add(name=name), labels[name])
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


def _add_fx_nodes(value: onnx.ValueInfoProto, metadata: Mapping[str, str]) -> None:
    """Lets a value that stands for an FX node stand for that of its name, too: a tool has handed it on under the name
    of an output."""
    for entry in value.metadata_props:
        if entry.key == provenance.FX_NODE:
            entry.value = " ".join([entry.value, metadata[provenance.FX_NODE]])


def _forget_copies(model: onnx.ModelProto, names: Mapping[str, str]) -> None:
    """Takes the metadata from values of other names than ours, of which ``names`` gives those by FX node, where one of
    that name is made and has it too: converters copy declarations for the casts that they add."""
    made = {name for node in model.graph.node for name in node.output}
    values = (*model.graph.value_info, *model.graph.output)
    known = {v.name: provenance.metadata_of(v).get(provenance.FX_NODE) for v in values if v.name in made}
    for value in model.graph.value_info:
        fx_nodes = provenance.metadata_of(value).get(provenance.FX_NODE)
        original = names.get(fx_nodes.split()[0]) if fx_nodes else None
        if original not in (None, value.name) and known.get(original or "") == fx_nodes:
            del value.metadata_props[:]


def _forget_other_types(model: onnx.ModelProto, expected: Mapping[str, Type], fits: Fits) -> None:
    """Takes the metadata from values in between that cannot be those of the FX nodes they were made for."""
    for value in model.graph.value_info:
        fx_nodes = provenance.metadata_of(value).get(provenance.FX_NODE, "").split()
        kinds = [expected.get(fx_node) for fx_node in fx_nodes]
        is_one = all(is_alike(kinds[0], kind) for kind in kinds)
        if not is_one or not all(fits(value.name, kind) for kind in kinds):
            del value.metadata_props[:]


def _may_stand(theirs: Type | None, ours: Type | None) -> bool:
    """Whether a value of one type may be one of the other, if in another shape."""
    return is_alike(theirs, ours) or (theirs is not None and ours is not None and are_merged(theirs, ours))


def _may_be_coarser(theirs: Type | None, ours: Type | None) -> bool:
    """Whether a value of one type may be one of the other, if in another shape and in a coarser dtype."""
    if theirs is not None and ours is not None and is_held_coarser(theirs, ours):
        theirs = in_dtype(theirs, ours.elem_type)
    return _may_stand(theirs, ours)


def _of_other_shapes(
    model: onnx.ModelProto, expected: Mapping[str, Type], theirs: Mapping[str, Type], shapes: Shapes
) -> list[Change]:
    """The values that stand for FX nodes of another shape, each with the type of such a node; of outputs those in one
    of the ``shapes``."""
    outputs = {value.name for value in model.graph.output}
    stand = {v.name: (theirs.get(v.name), fx_node) for fx_node, v in values_of_fx_nodes(model).items()}
    return [
        Change(name, there, expected[fx_node])
        for name, (there, fx_node) in stand.items()
        if there is not None and fx_node in expected and not is_alike(there, expected[fx_node])
        if (
            _is_shown(there, expected[fx_node], shapes.get(fx_node, frozenset()))
            if name in outputs
            else are_merged(there, expected[fx_node])
        )
    ]


def _is_shown(there: Type, here: Type, shapes: Set[tuple[int, ...]]) -> bool:
    return is_static(there) and is_static(here) and tuple(sizes(there)) in shapes


def _outputs_by_position(own: onnx.ModelProto, other: onnx.ModelProto) -> dict[str, str]:
    """From the outputs of ``own`` that ``other`` does not know by name to those that stand in their place."""
    ours, theirs = ([value.name for value in model.graph.output] for model in (own, other))
    if len(ours) != len(theirs):
        return {}
    return {a: b for a, b in zip(ours, theirs, strict=True) if a not in theirs and b not in ours}


def typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model with the types that can be inferred, in which each value is declared once."""
    copy = copy_of(model)
    _declare_once(copy.graph)
    return _inferred(copy)


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    with suppress(ValueError, onnx.shape_inference.InferenceError):  # beyond 2 GiB, or an operator contradicts itself
        return onnx.shape_inference.infer_shapes(model)
    return model


def _declare_once(graph: onnx.GraphProto) -> None:
    """Lets the first declaration of a value in between say what any of them says."""
    once: dict[str, onnx.ValueInfoProto] = {}
    for value in graph.value_info:
        first = once.setdefault(value.name, value)
        if value.HasField("type") and not first.HasField("type"):
            first.type.CopyFrom(value.type)
        if not first.metadata_props:
            first.metadata_props.extend(value.metadata_props)
    values = list(once.values())
    if len(values) < len(graph.value_info):
        del graph.value_info[:]
        graph.value_info.extend(values)


def _types(model: onnx.ModelProto) -> dict[str, Type]:
    """The types of the values: those that follow from the nodes, which a tool may have changed under a declaration,
    else those that are declared."""
    bare = copy_of(model)
    del bare.graph.value_info[:]
    followed = {
        name: kind for name, kind in types_of(_inferred(bare)).items() if kind.elem_type and kind.HasField("shape")
    }
    return {**types_of(model), **followed}


def _labelled_values(model: onnx.ModelProto) -> dict[str, Mapping[str, str]]:
    """The metadata of the values that stand for FX nodes, by name."""
    labelled = {value.name for value in values_of_fx_nodes(model).values()}
    values = (*model.graph.value_info, *model.graph.output)
    return {value.name: provenance.metadata_of(value) for value in values if value.name in labelled}


def _label(owner: onnx.NodeProto | onnx.ValueInfoProto, metadata: Mapping[str, str]) -> None:
    """Writes the metadata, but for the dtype that the other model's nodes computed in, and that the name told it."""
    for key, value in metadata.items():
        if key != provenance.COMPUTED_IN:
            owner.metadata_props.add(key=key, value=value)
    if metadata:
        owner.metadata_props.add(key=provenance.NAMED_ALIKE, value="")
