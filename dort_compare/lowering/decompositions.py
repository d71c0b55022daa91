"""The table given to AOTAutograd, computed from what the registry lowers.

Whatever has a lowering reaches it whole. So does whatever draws random numbers, since a decomposition would draw others
than eager does, and what torch decomposes into a write, which AOTAutograd refuses. Every other op for which torch knows
a decomposition is rewritten into simpler ones. What then remains without a lowering is named by ``lower``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table

from dort_compare.lowering.registry import registered

aten = torch.ops.aten

_WRITING = (aten.constant_pad_nd.default, aten.diagonal_scatter.default, aten.complex.default)
"""Decomposed by torch into a write, into a part of a new tensor."""


def decompositions() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """torch's decompositions, without those of the ops that have a lowering, draw random numbers or would write."""
    kept = {*registered(), *_WRITING}
    return {op: function for op, function in decomposition_table.items() if op not in kept and not _is_random(op)}


def _is_random(op: torch._ops.OperatorBase) -> bool:
    return isinstance(op, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in op.tags
