"""Which values of a model stay the same from run to run, and may be kept from the first."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

import onnx_ir as ir

from dort_compare.randomness import RANDOM_OPERATORS
from dort_compare.rewrites.graph import holds_graphs, sizes_of

_MOVES = {"Transpose", "Reshape", "Unsqueeze", "Squeeze", "Identity"}
"""What only shows elements again; products of matrices read those transposed as fast."""


def computed_once(graph: ir.Graph, constants: Collection[str]) -> Iterator[ir.Value]:
    """What nodes that need to be run but once, given ``constants`` among the inputs, make for others, or for the
    caller."""
    once = _nodes(graph, constants)
    for node in graph:
        if node in once:
            for value in node.outputs:
                if value.is_graph_output() or any(use.node not in once for use in value.uses()):
                    yield value


def _nodes(graph: ir.Graph, constants: Collection[str]) -> set[ir.Node]:
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
