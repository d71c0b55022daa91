"""What reductions begin with."""

from __future__ import annotations

import math

import torch


def neutral(reduce: str, dtype: torch.dtype) -> int | float | bool:
    """What leaves the other operand of a reduction, by torch's name for it, as it is; and what it makes of nothing."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype.is_floating_point:
        return -math.inf if reduce == "amax" else math.inf
    if dtype == torch.bool:
        return reduce == "amin"
    limits = torch.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max
