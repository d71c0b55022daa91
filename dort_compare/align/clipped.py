"""Activations that a quantization does: a quantizer drops a Relu, and the value before has its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from dort_compare.captures import readers_of, rename_made, rename_read
from dort_compare.protos import copy_of

_CLIPS = ("Relu", "Clip")


def clipped_by_quantization(other: onnx.ModelProto, own: onnx.ModelProto) -> onnx.ModelProto:
    """``other``, in which what is clipped by nothing but a quantization has the name that it has in ``own``: behind it.

    So it is where one quantization alone reads the value that bears the name, nothing has clipped it before, and what
    stands behind is neither returned nor such a value itself.
    """
    clipped = {node.output[0] for node in own.graph.node if node.op_type in _CLIPS}
    unclipped = {name for node in other.graph.node if node.op_type not in _CLIPS for name in node.output}
    returned = {value.name for value in other.graph.output}
    readers = readers_of(other.graph.node) | {name: [] for name in returned}
    found = {name: _dequantized(readers, name) for name in clipped & unclipped}
    behind = {name: at for name, at in found.items() if at and at not in returned | found.keys()}
    if not behind:
        return other
    model = copy_of(other)
    exchanged = behind | {at: name for name, at in behind.items()}
    for node in model.graph.node:
        rename_made(node, exchanged)
        rename_read(node, exchanged)
    return model


def _dequantized(readers: Mapping[str, Sequence[onnx.NodeProto]], name: str) -> str:
    """What is dequantized of a value that is read to be quantized and for nothing else; "" for other values."""
    for op_type in ("QuantizeLinear", "DequantizeLinear"):
        nodes = readers.get(name, ())
        if [node.op_type for node in nodes] != [op_type]:
            return ""
        name = nodes[0].output[0]
    return name
