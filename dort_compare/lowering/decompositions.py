"""The table given to AOTAutograd, computed from what the registry lowers.

Whatever has a lowering reaches it whole. So does whatever draws random numbers, since a decomposition would draw others
than eager does, and what torch decomposes into what AOTAutograd refuses. Every other op for which torch knows a
decomposition is rewritten into simpler ones. What then remains without a lowering is named by ``lower``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table

from dort_compare.dtypes import is_half_tensor
from dort_compare.lowering import foreach, fused_layers, losses
from dort_compare.lowering.margin_loss import multilabel_margin_loss_forward
from dort_compare.lowering.registry import registered
from dort_compare.randomness import draws

aten = torch.ops.aten
Decomposition = Callable[..., Any]

_WRITING = (aten.complex.default, aten.polar.default)
"""Decomposed by torch into ``prims.copy_to``, into a part of a new tensor."""
_READING = (aten._local_scalar_dense.default, aten.item.default)
"""Decomposed by torch into ``prims.item``, which it cannot trace."""
_WITH_STATISTICS = (
    aten.native_layer_norm.default,
    aten.native_layer_norm_backward.default,
    aten.native_group_norm.default,
    aten.native_group_norm_backward.default,
    aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_no_training.default,
    aten._batch_norm_with_update_functional.default,
    aten._batch_norm_no_update.default,
    aten.native_batch_norm_backward.default,
    aten.batch_norm_backward.default,
)
"""Whole for float32 and float64 only: of half-precision operands torch's kernels save the statistics in another dtype
than torch traces, and so refuse what a graph hands on from one to the other."""


def decompositions() -> dict[torch._ops.OperatorBase, Decomposition]:
    """torch's, without those of the ops that have a lowering, draw random numbers or would write, and ours."""
    kept = {*registered(), *_WRITING, *_READING}
    table = {op: function for op, function in decomposition_table.items() if op not in kept and not draws(op)}
    halves = {op: _for_half(decomposition_table[op]) for op in _WITH_STATISTICS}
    mended = {
        aten.multilabel_margin_loss_forward.default: multilabel_margin_loss_forward,
        **losses.decompositions(),
    }
    return table | halves | mended | fused_layers.decompositions() | foreach.decompositions()


def _for_half(decomposition: Decomposition) -> Decomposition:
    """The decomposition where an operand is in half precision; elsewhere the op stays whole."""

    @functools.wraps(decomposition)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        return decomposition(*args, **kwargs) if any(map(is_half_tensor, args)) else NotImplemented

    return decompose
