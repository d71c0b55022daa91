"""How far apart neighbouring numbers lie."""

from __future__ import annotations

import torch

from dort_compare.dtypes import infinite_from


def spacing(value: torch.Tensor, precision: torch.dtype) -> torch.Tensor:
    """By how much a rounding to ``precision`` may move each element of a floating ``value``, in float64 and its shape.

    Epsilon times the element; below the smallest normal number of the dtype that reaches lower, epsilon times that: the
    numbers there lie as far apart as just above it (Higham, Accuracy and Stability of Numerical Algorithms, 2.1).
    Half of the element at most, so that no one step leads to zero; nothing for zero, infinity and NaN, nor for what
    stands for infinity, as a mask of the smallest number: no rounding of that lets one score through before others.
    """
    size = value.double().abs().nan_to_num(0, 0)
    size = size.masked_fill(size >= infinite_from(torch.promote_types(precision, torch.float32)), 0)
    lowest = min(torch.finfo(dtype).smallest_normal for dtype in (precision, value.dtype))
    return torch.minimum(torch.finfo(precision).eps * size.clamp(min=lowest), size / 2)
