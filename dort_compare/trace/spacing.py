"""How far apart neighbouring numbers lie."""

from __future__ import annotations

import torch


def spacing(value: torch.Tensor, precision: torch.dtype) -> torch.Tensor:
    """By how much a rounding to ``precision`` may move each element of a floating ``value``, in float64 and its shape.

    Epsilon times the element; below the smallest normal number of the dtype that reaches lower, epsilon times that: the
    numbers there lie as far apart as just above it (Higham, Accuracy and Stability of Numerical Algorithms, 2.1).
    Half of the element at most, so that no one step leads to zero; nothing for zero, infinity and NaN.
    """
    size = value.double().abs().nan_to_num(0, 0)
    lowest = min(torch.finfo(dtype).smallest_normal for dtype in (precision, value.dtype))
    return torch.minimum(torch.finfo(precision).eps * size.clamp(min=lowest), size / 2)
