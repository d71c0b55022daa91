"""Outputs that have one name, as optimizers leave them that merge equal values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import onnx
from onnx import helper

from dort_compare.captures import bodies
from dort_compare.protos import copy_of, free_name


def with_names_of_their_own(model: onnx.ModelProto, ours: Sequence[str] = ()) -> onnx.ModelProto:
    """The model, in which every output has a name of its own: what it returns several times is handed on for that.

    ``ours`` are the outputs of a graph that it returns, by position where it has as many: they get those names, and
    no metadata, which a merged value has of one of them alone.
    """
    names = [value.name for value in model.graph.output]
    times = Counter(names)
    if len(times) == len(names):
        return model
    copy = copy_of(model)
    fitting = ours if len(ours) == len(names) else names
    keeps = {name: i for i, name in reversed([*enumerate(names)])}
    if fitting is ours:
        keeps |= {name: i for i, (name, own) in enumerate(zip(names, ours, strict=True)) if name == own}
    taken = set(_names_in(model.graph))
    for i, (value, wanted) in enumerate(zip(copy.graph.output, fitting, strict=True)):
        if times[value.name] == 1:
            continue
        if fitting is ours:
            del value.metadata_props[:]
        if i != keeps[value.name]:
            name = free_name(wanted, taken)
            copy.graph.node.append(helper.make_node("Identity", [value.name], [name], name=name))
            value.name = name
    return copy


def _names_in(graph: onnx.GraphProto) -> Iterator[str]:
    """The names of all values of a graph, and of the graphs within it."""
    yield from (value.name for value in (*graph.input, *graph.initializer))
    yield from (tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        yield from (*node.input, *node.output)
        for body in bodies(node):
            yield from _names_in(body)
