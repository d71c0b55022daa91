"""Operators that leave their results as they were in memory."""

from __future__ import annotations

import torch

aten = torch.ops.aten
prims = torch.ops.prims

EMPTY = (
    aten.empty.memory_format,
    aten.empty_permuted.default,
    aten.empty_strided.default,
    prims.empty.default,
    prims.empty_permuted.default,
    prims.empty_strided.default,
)
NEW_EMPTY = (aten.new_empty.default, aten.new_empty_strided.default)
EMPTY_LIKE = (aten.empty_like.default,)
UNSET = frozenset({*EMPTY, *NEW_EMPTY, *EMPTY_LIKE})
