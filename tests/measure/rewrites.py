"""Rewrites of an ONNX model that change nothing about what it computes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import onnx

Rewrite = Callable[[onnx.ModelProto, Random], onnx.ModelProto]


def renamed(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """Every value that a node computes gets another name."""
    names = {name: f"v{random.getrandbits(48)}" for node in model.graph.node for name in node.output if name}
    model = _copy(model)
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*model.graph.value_info, *model.graph.output):
        value.name = names.get(value.name, value.name)
    return model


def reordered(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """The nodes in a random topological order."""
    waiting, ordered = list(model.graph.node), []
    missing = {name for node in waiting for name in node.output}
    while waiting:
        ready = [node for node in waiting if not missing.intersection(node.input)]
        node = random.choice(ready)
        waiting.remove(node)
        missing.difference_update(node.output)
        ordered.append(node)
    return _with_nodes(model, ordered)


def with_identities(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """Two copies on some edges."""
    return _on_edges(model, random, _values(model), [("Identity", {}), ("Identity", {})])


def with_casts(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """Some edges of float32 go through float64 and back."""
    there, back = {"to": onnx.TensorProto.DOUBLE}, {"to": onnx.TensorProto.FLOAT}
    float32 = {name for name, dtype in _values(model).items() if dtype == onnx.TensorProto.FLOAT}
    return _on_edges(model, random, dict.fromkeys(float32), [("Cast", there), ("Cast", back)])


def commuted(model: onnx.ModelProto, random: Random) -> onnx.ModelProto:
    """Some sums and products have their operands exchanged."""
    model = _copy(model)
    for node in model.graph.node:
        if node.op_type in ("Add", "Mul") and random.random() < 0.5:
            node.input[:] = reversed(node.input)
    return model


REWRITES: tuple[Rewrite, ...] = (renamed, reordered, with_identities, with_casts, commuted)


def _values(model: onnx.ModelProto) -> dict[str, int]:
    return {value.name: value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.value_info)}


def _on_edges(
    model: onnx.ModelProto, random: Random, values: dict[str, int], chain: list[tuple[str, dict[str, int]]]
) -> onnx.ModelProto:
    nodes = []
    for node in _copy(model).graph.node:
        for position, name in enumerate(node.input):
            if name not in values or random.random() < 0.8:
                continue
            for op_type, attributes in chain:
                there = f"e{random.getrandbits(48)}"
                nodes.append(onnx.helper.make_node(op_type, [node.input[position]], [there], there, **attributes))
                node.input[position] = there
        nodes.append(node)
    return _with_nodes(model, nodes)


def _with_nodes(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    model = _copy(model)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
