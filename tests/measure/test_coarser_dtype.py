"""What a coarser dtype leaves of a value."""

from __future__ import annotations

import pytest
import torch

from dort_compare.measure.coarser_dtype import but_for_masks

MASKED = torch.tensor([1.5, torch.finfo(torch.float32).min])


def test_a_mask_that_is_clipped_is_the_one_that_was_meant() -> None:
    clipped = torch.tensor([1.5, -1e4])
    assert torch.equal(but_for_masks(MASKED, clipped, torch.float16), MASKED)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_a_value_of_another_dtype_stays_as_it_is(dtype: torch.dtype) -> None:
    value = torch.tensor([1, -10000], dtype=dtype)
    assert but_for_masks(MASKED, value, torch.float16) is value
