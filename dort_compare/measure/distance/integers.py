"""Integers and bools of any dtype, with their order and their gaps, which float64 does not hold beyond 2^53."""

from __future__ import annotations

import torch

LOWEST = -(2**63)  # of int64; XOR with it maps the order of uint64 onto that of int64


def ordered(values: torch.Tensor) -> torch.Tensor:
    """Integers as int64 with the same order and the same differences (uint64: less 2^63)."""
    return values.view(torch.int64) ^ LOWEST if values.dtype == torch.uint64 else values.to(torch.int64)


def gaps(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """|one - other| modulo 2^64, so exact where it is read as unsigned."""
    ours, theirs = ordered(one), ordered(other)
    return torch.maximum(ours, theirs) - torch.minimum(ours, theirs)


def as_floats(unsigned: torch.Tensor) -> torch.Tensor:
    """Unsigned integers, kept as int64, in float64: rounded, and 0 only where they are."""
    return unsigned.double() + 2.0**64 * (unsigned < 0)
