"""The table given to AOTAutograd, computed from what the registry lowers.

Whatever has a lowering reaches it whole; every other op for which torch knows a decomposition is rewritten into simpler
ones. What then remains without a lowering is named by ``lower``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table

from dort_compare.lowering.registry import registered


def decompositions() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """torch's decompositions, without those of the ops that have a lowering."""
    lowered = registered()
    return {op: function for op, function in decomposition_table.items() if op not in lowered}
