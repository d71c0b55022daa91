"""The spatial dimensions of images, of which torch lets one number stand for all."""

from __future__ import annotations

from collections.abc import Sequence


def each(numbers: Sequence[int], rank: int) -> list[int]:
    """One number for each spatial dimension; torch lets one stand for all."""
    return list(numbers) * rank if len(numbers) == 1 else list(numbers)
