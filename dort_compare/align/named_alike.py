"""Values of another model that stand for FX nodes by their names alone, which other tools give to other values too."""

from __future__ import annotations

from collections.abc import Set

import onnx

from dort_compare.protos import copy_of
from dort_compare.provenance import FX_NODE, NAMED_ALIKE, metadata_of


def named_alike(model: onnx.ModelProto) -> frozenset[str]:
    """The FX nodes that have a value by its name alone."""
    known = map(metadata_of, model.graph.value_info)
    return frozenset(name for each in known if NAMED_ALIKE in each for name in each.get(FX_NODE, "").split())


def without_names(model: onnx.ModelProto, fx_nodes: Set[str]) -> onnx.ModelProto:
    """A copy of the model in which names alone make nothing stand for these FX nodes."""
    copy = copy_of(model)
    for owner in (*copy.graph.value_info, *copy.graph.node):
        known = metadata_of(owner)
        if NAMED_ALIKE in known and not fx_nodes.isdisjoint(known.get(FX_NODE, "").split()):
            del owner.metadata_props[:]
    return copy
