"""Values that two models make in the same way, but for attributes and constants."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from dort_compare.align.tensor_types import Type, is_alike


def made_alike(
    own: onnx.ModelProto, other: onnx.ModelProto, ours: Mapping[str, Type], theirs: Mapping[str, Type]
) -> frozenset[str]:
    """The names of what both make by the same operator of values of the same names, whose types may be the same or
    which were made so themselves: one of another type was edited to be that, or comes of one that was.

    ``ours`` and ``theirs`` are the types that are known.
    """
    known = {node.output[0]: node for node in own.graph.node if node.output}
    found: set[str] = set()
    for node in other.graph.node:
        like = known.get(node.output[0]) if node.output else None
        if like is None or (node.op_type, node.domain) != (like.op_type, like.domain):
            continue
        if node.input != like.input or node.output != like.output:
            continue
        if all(name in found or is_alike(theirs.get(name), ours.get(name)) for name in node.input):
            found.update(node.output)
    return frozenset(found)
