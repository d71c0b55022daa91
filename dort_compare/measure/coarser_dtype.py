"""Values that a converted model holds in a coarser dtype than torch, as far as that holds them."""

from __future__ import annotations

from dataclasses import replace

import torch

from dort_compare.dtypes import as_held, dtype_name, infinite_from
from dort_compare.measure.distance.distances import Number
from dort_compare.measure.noise.extremes import masks
from dort_compare.measure.noise.floor import MOSTLY_NOISE
from dort_compare.trace.four_executions import Executed

_CLIPPED = 1e4 * (1 - 2**-7)
"""Converters clip constants to this size at least, which bfloat16 may round down."""


def as_held_by(executed: Executed, dtype: torch.dtype) -> Executed:
    """What was executed of a value that ONNX holds in ``dtype``, but for masks."""
    step, right = executed.step, as_held(executed.reference, dtype)
    runs = [
        but_for_masks(step.value, run, dtype, right) if isinstance(run, torch.Tensor) else run for run in executed.local
    ]
    return replace(executed, local=runs, expected=executed.reference)


def but_for_masks(
    expected: torch.Tensor, value: torch.Tensor, dtype: torch.dtype, right: torch.Tensor | None = None
) -> torch.Tensor:
    """``value``, ONNX's, with torch's elements, or those that are ``right``, where a mask is
    that ``dtype`` does not hold.

    Of torch's ``expected`` elements these are finite, stand for infinity and lie beyond the largest number of
    ``dtype``; ONNX has such a large number there, or infinity. A ``value`` of another shape or dtype stays as it is.
    """
    beyond = expected.isfinite() & (expected.abs() > torch.finfo(dtype).max)
    if (value.shape, value.dtype) != (expected.shape, expected.dtype) or not beyond.any():
        return value
    infinite = expected.abs() >= infinite_from(expected.dtype)
    hidden = masks(expected)
    beyond &= infinite if hidden is None else infinite | hidden
    is_mask = beyond & (value.sign() == expected.sign()) & (value.abs() >= _CLIPPED)
    return torch.where(is_mask, expected if right is None else right, value)


def what_is_lost(expected: torch.Tensor, dtype: torch.dtype, error: Number | None) -> str | None:
    """Says so where ``dtype`` holds but zeros of torch's value, whose ``error`` leaves it a digit; None else."""
    largest = expected.abs().max().item() if expected.numel() else 0.0
    if not largest or as_held(expected, dtype).any() or (error or 0.0) > MOSTLY_NOISE * largest:
        return None
    return f"{dtype_name(dtype)} holds nothing of it: its largest element is {largest:.3g}"
