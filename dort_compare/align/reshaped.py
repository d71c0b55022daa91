"""Values that a model holds in another shape than the one they are to be compared in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

import onnx
from onnx import helper

from dort_compare.align.tensor_types import Type
from dort_compare.captures import rename_made, rename_read

_THERE, _AGAIN = "/there", "/again"
"""What the nodes of the model make, and what they read."""


def reshape(model: onnx.ModelProto, types: Mapping[str, tuple[Type, Type]]) -> None:
    """Gives values in between another shape, and those that read them the one that they had.

    ``types`` holds, by name, what a value is and what it is to be.
    """
    there, again = ({name: name + mark for name in types} for mark in (_THERE, _AGAIN))
    nodes = []
    for node in model.graph.node:
        reshaped = [name for name in node.output if name in types]
        rename_read(node, again)
        rename_made(node, there)
        nodes += [node, *chain.from_iterable(map(_there_and_back, reshaped))]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    declared = {value.name: value for value in model.graph.value_info}
    for name, (given, wanted) in types.items():
        model.graph.initializer.extend((_sizes(name, wanted), _sizes(name + _AGAIN, given)))
        declared[name].type.tensor_type.CopyFrom(wanted)
        for each in (there[name], again[name]):
            model.graph.value_info.add(name=each).type.tensor_type.CopyFrom(given)


def _there_and_back(name: str) -> Iterator[onnx.NodeProto]:
    for read, made in ((name + _THERE, name), (name, name + _AGAIN)):
        yield helper.make_node("Reshape", [read, _shape_of(made)], [made], f"{made}/Reshape")


def _sizes(name: str, wanted: Type) -> onnx.TensorProto:
    sizes = [dim.dim_value for dim in wanted.shape.dim]
    return helper.make_tensor(_shape_of(name), onnx.TensorProto.INT64, [len(sizes)], sizes)


def _shape_of(name: str) -> str:
    return f"{name}/sizes"
