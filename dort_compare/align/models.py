"""Pairs of values of two ONNX models that were made from the same FX graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import onnx

from dort_compare.align.provenance import values_of_fx_nodes
from dort_compare.provenance import PRODUCER


@dataclass(frozen=True)
class ModelPair:
    """Names of two values that stand for the same thing; None on the side that has none."""

    first: str | None
    second: str | None


def labels(model: onnx.ModelProto) -> Mapping[str, str]:
    """What each value of ``model`` stands for: by value name, its FX node, or for graph inputs the input's name.

    In a model of our own lowering every other value has its name, which one graph always gets in the same way, for a
    label. ONNX Runtime's optimizers drop metadata but keep the names of values that survive: read the labels before.
    """
    own = {name: name for name in value_names(model)} if model.producer_name == PRODUCER else {}
    inputs = {value.name: value.name for value in model.graph.input}
    return own | inputs | {value.name: fx_node for fx_node, value in values_of_fx_nodes(model).items()}


def value_names(model: onnx.ModelProto) -> list[str]:
    """Inputs, initializers and node outputs of ``model``, in order of execution."""
    graph = model.graph
    given = [value.name for value in graph.input] + [tensor.name for tensor in graph.initializer]
    return given + [name for node in graph.node for name in node.output if name]


def align_models(
    first: Sequence[str], second: Sequence[str], first_labels: Mapping[str, str], second_labels: Mapping[str, str]
) -> Iterator[ModelPair]:
    """Pairs the values that bear the same label, in the order of ``first``; what has no partner stands where it ran.

    A value without a label has no partner: a name that only means something inside its own model proves nothing.
    """
    position = {second_labels[name]: i for i, name in enumerate(second) if name in second_labels}
    shared = position.keys() & {first_labels[name] for name in first if name in first_labels}
    done = 0
    for name in first:
        label = first_labels.get(name)
        if label not in shared:
            yield ModelPair(name, None)
            continue
        yield from _alone(second[done : position[label]], second_labels, shared)
        done = max(done, position[label])
        yield ModelPair(name, second[position[label]])
    yield from _alone(second[done:], second_labels, shared)


def _alone(names: Sequence[str], labels: Mapping[str, str], shared: Set[str]) -> Iterator[ModelPair]:
    return (ModelPair(None, name) for name in names if labels.get(name) not in shared)
