"""Operands that are moved by one rounding, and masks among them, which are not."""

from __future__ import annotations

import pytest
import torch

from dort_compare.measure.noise.shake import masks_unmoved, shake


def moved(value: torch.Tensor, precision: torch.dtype = torch.float32) -> torch.Tensor:
    return masks_unmoved(value, shake(value, precision, torch.Generator().manual_seed(0)).to(value.dtype)) != value


SCORES = torch.linspace(-3, 3, 24).reshape(4, 6)


@pytest.mark.parametrize("infinity", [torch.finfo(torch.float32).min, -1e9, -1e5])
@pytest.mark.parametrize("passed", [1e-3, 1.0])
def test_what_a_mask_hides_stays_and_all_else_moves(infinity: float, passed: float) -> None:
    hidden = torch.zeros(4, 6, dtype=torch.bool)
    hidden[0], hidden[:, 1] = True, True
    value = (SCORES * passed).masked_fill(hidden, infinity)
    found = moved(value)
    assert not found[hidden].any()
    assert found[~hidden].all()


NO_MASKS = {
    "small": SCORES,
    "large": SCORES * 1e9,
    "all large": SCORES.abs() + 5e4,
    "all large, below": -SCORES.abs() - 5e4,
    "one large in a row": torch.eye(4) * 1e5 + 0.5,
    "large above": SCORES.masked_fill(SCORES > 0, 1e9),
}


@pytest.mark.parametrize("value", NO_MASKS.values(), ids=NO_MASKS)
def test_what_is_no_mask_moves(value: torch.Tensor) -> None:
    assert moved(value).all()


def test_masks_of_half_precision_move() -> None:
    assert moved(torch.tensor([1.0, -65504.0, 2.0, -65504.0], dtype=torch.float16), torch.float16).all()


def test_nothing_is_made_of_an_empty_tensor() -> None:
    assert not moved(torch.ones(0)).numel()
