"""Gaps of integers, whatever their dtype and size."""

from __future__ import annotations

import pytest
import torch

from dort_compare.measure.distance.integers import LOWEST, as_floats, gaps, ordered

ENDS = [(dtype, torch.iinfo(dtype)) for dtype in (torch.int8, torch.uint8, torch.int64, torch.uint64)]


@pytest.mark.parametrize(("dtype", "ends"), ENDS, ids=[str(dtype) for dtype, _ in ENDS])
def test_the_gap_is_exact_from_end_to_end(dtype: torch.dtype, ends: torch.iinfo) -> None:
    low, high = (torch.tensor([end], dtype=dtype) for end in (ends.min, ends.max))
    assert gaps(low, high).item() % 2**64 == gaps(high, low).item() % 2**64 == ends.max - ends.min
    assert (ordered(low) < ordered(high)).all()


def test_bools_are_0_and_1() -> None:
    assert gaps(torch.tensor([True, True]), torch.tensor([False, True])).tolist() == [1, 0]


def test_as_floats_what_is_above_int64_stays_positive() -> None:
    assert as_floats(torch.tensor([0, 1, LOWEST, -1])).tolist() == [0.0, 1.0, 2.0**63, 2.0**64]
