"""The spatial dimensions of images, of which torch lets one number stand for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_Number = TypeVar("_Number")


def each(numbers: Sequence[_Number], rank: int) -> list[_Number]:
    """One number for each spatial dimension; torch lets one stand for all."""
    return list(numbers) * rank if len(numbers) == 1 else list(numbers)
