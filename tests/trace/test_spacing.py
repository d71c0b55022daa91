"""By how much a rounding moves a number, wherever it lies."""

from __future__ import annotations

import pytest
import torch

from dort_compare.trace.spacing import spacing

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e4, 100.0, 1.0, 0.1, 0.02])
def test_it_reaches_the_neighbour_and_not_far_beyond(dtype: torch.dtype, size: float) -> None:
    """Sizes are in smallest normal numbers."""
    value = torch.linspace(1, 2, 64, dtype=torch.float64).mul(size * torch.finfo(dtype).smallest_normal).to(dtype)
    value = torch.cat([value, -value])
    away = torch.nextafter(value, value.sign() * torch.inf).double() - value.double()
    found = spacing(value, dtype)
    assert found.dtype == torch.float64
    assert (found <= 2 * away.abs()).all()
    far = value.double().abs() >= 2 * away.abs()  # beyond the smallest number of all
    assert (found >= away.abs())[far].all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_becomes_zero_and_zero_holds_still(dtype: torch.dtype) -> None:
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    value = torch.tensor([0.0, smallest, -smallest], dtype=torch.float64).to(dtype)
    assert spacing(value, dtype).tolist() == [0.0, smallest / 2, smallest / 2]


def test_what_is_not_finite_stays_as_it_is() -> None:
    value = torch.tensor([torch.inf, -torch.inf, torch.nan, 1.0])
    assert spacing(value, torch.float32).tolist() == [0.0, 0.0, 0.0, torch.finfo(torch.float32).eps]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_what_stands_for_infinity_stays_as_it_is(dtype: torch.dtype) -> None:
    """A mask of the lowest number hides all scores of a row alike."""
    assert spacing(torch.tensor([torch.finfo(dtype).min, torch.finfo(dtype).max / 2], dtype=dtype), dtype).sum() == 0
    assert spacing(torch.tensor([6e4], dtype=torch.float16), torch.float16).item() > 0


def test_a_coarser_precision_does_not_reach_below_that_of_the_value() -> None:
    """What is float32 may have been larger where it was rounded to half precision."""
    value = torch.tensor([1e-7])
    assert spacing(value, torch.float16).item() == pytest.approx(1e-7 * torch.finfo(torch.float16).eps)
