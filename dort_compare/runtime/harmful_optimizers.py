"""The optimizers of ONNX Runtime that would harm a model."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from dort_compare.captures import bodies, readers_of, with_bodies


def harmful_for(model: onnx.ModelProto) -> list[str]:
    """Those that would change its values, or leave it without some.

    MatMulScaleFusion keeps the factor as float32, which costs a float64 product half of its digits. EliminateIdentity
    gives the name of an output to what it is a copy of, and, where GemmTransposeFusion has been there before, doesn't
    know that this has other readers (seen in ONNX Runtime 1.31).
    """
    harmful = {
        "MatMulScaleFusion": _has_float64(model.graph),
        "EliminateIdentity": any(map(_returns_copy_of_what_is_read, _graphs(model))),
    }
    return [name for name, harms in harmful.items() if harms]


def _has_float64(graph: onnx.GraphProto) -> bool:
    values = (*graph.input, *graph.value_info, *graph.output)
    return any(value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE for value in values)


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    yield model.graph
    for node in with_bodies(model.graph.node):
        yield from bodies(node)


def _returns_copy_of_what_is_read(graph: onnx.GraphProto) -> bool:
    """Whether an output is a copy, at any number of removes, of a value that other nodes read."""
    copied = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Identity"}
    waiting = [value.name for value in graph.output if value.name in copied]
    readers = readers_of(graph.node) if waiting else {}
    while waiting:
        source = copied[waiting.pop()]
        if len(readers[source]) > 1:
            return True
        if source in copied:
            waiting.append(source)
    return False
