"""Rewrites of a lowered model that ONNX Runtime's own optimizers do not make; `rules` has one file each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass
from torch._subclasses.fake_tensor import unset_fake_temporarily

from dort_compare import provenance
from dort_compare.rewrites.rules.bias import mask_into_bias
from dort_compare.rewrites.rules.blocks import in_blocks
from dort_compare.rewrites.rules.by_head import by_head
from dort_compare.rewrites.rules.expand import expand_late
from dort_compare.rewrites.rules.heads import with_heads
from dort_compare.rewrites.rules.rms_norm import rms_norm
from dort_compare.rewrites.rules.row import row_into_matmul
from dort_compare.rewrites.rules.scale import scale_into_matmul
from dort_compare.rewrites.rules.softmax import softmax
from dort_compare.rewrites.rules.turned_once import turned_once

Rule = Callable[[ir.Model, ir.Node], str | None]
"""Rewrites the model at a node, or says in a few words why not."""

STAGES: tuple[Mapping[str, tuple[Rule, ...]], ...] = (
    dict.fromkeys(("Add", "Div", "Mul", "Sub"), (expand_late,)),
    {
        "Mul": (scale_into_matmul,),
        "ReduceMax": (softmax,),
        "ReduceMean": (rms_norm,),
        "Sub": (row_into_matmul,),
        "Transpose": (turned_once,),
    },
    {"FusedMatMul": (with_heads,), "MatMul": (with_heads,)},
    {"FusedMatMul": (by_head,), "MatMul": (by_head,)},
    {"Scan": (mask_into_bias, in_blocks)},
)
"""By the op type of the node that each starts from, in order: one that spares passes over whole tensors, those that
stand alone, one that makes way for the next, one that takes together what the others have left, and those that change
what was taken together."""

ON_CPU = {by_head, in_blocks, mask_into_bias, with_heads, row_into_matmul, turned_once}
"""Those of which nobody knows whether they pay elsewhere; a GPU's matrix products want widths of whole tiles."""

_LOG = logging.getLogger(__name__)


def rewritten(model: ir.Model, providers: Sequence[tuple[str, Any]]) -> ir.Model:
    """A copy of ``model`` without what nothing reads, which ONNX Runtime (1.31) would compute in each run, and with all
    rewrites made that pay on ``providers``.

    ``providers`` are (name, options) pairs. A value that is there before and after bears the same name. Why a rule did
    not apply is logged at level DEBUG.
    """
    is_cpu = all(name == "CPUExecutionProvider" for name, _ in providers)
    copy = model.clone()
    RemoveUnusedNodesPass()(copy)
    with unset_fake_temporarily():  # AOTAutograd compiles under its fake mode, the constants of a model are real
        for rules in STAGES:
            _apply(copy, {op_type: [r for r in each if is_cpu or r not in ON_CPU] for op_type, each in rules.items()})
    return copy


def _apply(model: ir.Model, rules: Mapping[str, Sequence[Rule]]) -> None:
    made = [_tried(model, node, rule) for node in list(model.graph) for rule in rules.get(node.op_type, ())]
    if any(made):
        RemoveUnusedNodesPass()(model)
        model.graph.sort()  # a node that takes the place of several may stand before what it reads


def _tried(model: ir.Model, node: ir.Node, rule: Rule) -> bool:
    refused = rule(model, node)
    origin = node.metadata_props.get(provenance.FX_NODE, node.name)
    _LOG.debug("%s at %s: %s", rule.__name__, origin, refused or "made")
    return refused is None
