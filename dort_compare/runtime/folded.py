"""What a model computes of constants alone, computed once: ONNX Runtime folds those of the CPU, and no others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping

import onnx_ir as ir
import torch

from dort_compare.randomness import RANDOM_OPERATORS
from dort_compare.rewrites.graph import holds_graphs, sizes_of
from dort_compare.runtime.session import Session

_MOVES = {"Transpose", "Reshape", "Unsqueeze", "Squeeze", "Identity"}
"""What only shows elements again; products of matrices read those transposed as fast."""


def folded(model: ir.Model, constants: Mapping[str, torch.Tensor], make: Callable[[ir.Model], Session]) -> Session:
    """A session for ``model``, made by ``make``, that takes the inputs which are not among ``constants``.

    The constants themselves, in the memory that they have, and what nodes make of them alone are inputs of it that stay
    the same: `Session.prepared` hands them over in each run.
    """
    nodes = _computed_once(model.graph, constants)
    handed = list(_handed_on(model.graph, nodes))
    if not handed:
        return _holding(make(model), constants)
    ours = [value for value in model.graph.inputs if value.name in constants]
    before = make(part_of(model, ours, handed))
    devices = {str(value.name): _device_of(constants) for value in handed}
    found = before.run({str(value.name): constants[str(value.name)] for value in ours}, devices)
    rest = make(part_of(model, [*model.graph.inputs, *handed], model.graph.outputs))
    return _holding(rest, {**constants, **dict(zip(devices, found, strict=True))})


def _holding(session: Session, constants: Mapping[str, torch.Tensor]) -> Session:
    return dataclasses.replace(session, constants={**session.constants, **constants})


def _device_of(constants: Mapping[str, torch.Tensor]) -> torch.device:
    return next(iter(constants.values())).device


def part_of(model: ir.Model, inputs: Collection[ir.Value], outputs: Collection[ir.Value | str]) -> ir.Model:
    """What of a model computes ``outputs``, values or their names, of ``inputs``."""
    graph = ir.convenience.extract(model.graph, [*inputs], [*outputs])
    return ir.Model(graph, ir_version=model.ir_version, functions=tuple(model.functions.values()))


# Which.


def _computed_once(graph: ir.Graph, constants: Collection[str]) -> set[ir.Node]:
    """The nodes that read constants and nothing that moves, and make no more of them than they read; of those that only
    show them again, what such a node reads."""
    known = {value for value in graph.inputs if value.name in constants}
    found: list[ir.Node] = []
    for node in graph:
        read = [value for value in node.inputs if value is not None]
        is_known = all(value in known or value.is_initializer() or _is_constant(value) for value in read)
        if is_known and not known.isdisjoint(read) and _may_be_computed_once(node, read):
            found.append(node)
            known.update(node.outputs)
    once: set[ir.Node] = set()
    for node in reversed(found):
        if node.op_type not in _MOVES or any(use.node in once for value in node.outputs for use in value.uses()):
            once.add(node)
    return once


def _is_constant(value: ir.Value) -> bool:
    made = value.producer()
    return made is not None and made.op_type == "Constant"


def _may_be_computed_once(node: ir.Node, read: Collection[ir.Value]) -> bool:
    if node.op_type in RANDOM_OPERATORS or holds_graphs(node):
        return False
    made, taken = (sum(map(_nbytes, values)) for values in (node.outputs, read))
    return made <= taken < math.inf


def _nbytes(value: ir.Value) -> float:
    """The size of a value; infinite where it is not known."""
    sizes = sizes_of(value)
    return math.inf if sizes is None or value.dtype is None else math.prod(sizes) * value.dtype.itemsize


def _handed_on(graph: ir.Graph, once: Collection[ir.Node]) -> Iterator[ir.Value]:
    """What nodes that are computed once make for others, or for the caller."""
    for node in graph:
        if node in once:
            for value in node.outputs:
                if value.is_graph_output() or any(use.node not in once for use in value.uses()):
                    yield value
