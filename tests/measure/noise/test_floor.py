"""The noise floor: what rounding alone explains."""

from __future__ import annotations

import pytest
import torch

from dort_compare.measure.noise.floor import noise_floor, rounding, rounding_of


def test_integers_and_booleans_allow_nothing() -> None:
    assert noise_floor(None, 1e9, 5.0) == 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_floor_is_a_few_roundings_of_the_largest_element(dtype: torch.dtype) -> None:
    rounding = torch.finfo(dtype).eps
    assert noise_floor(dtype, 1.0, None) >= 2 * rounding
    assert noise_floor(dtype, 1.0, None) <= 1e4 * rounding
    assert noise_floor(dtype, 8.0, None) == 8 * noise_floor(dtype, 1.0, None)


def test_float32_has_one_part_in_a_hundred_thousand() -> None:
    assert noise_floor(torch.float32, 3.0, None) == pytest.approx(3e-5)


def test_twice_torchs_own_error_is_noise_too() -> None:
    assert noise_floor(torch.float32, 1.0, 0.05) == 0.1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_below_the_smallest_normal_number_the_floor_does_not_fall(dtype: torch.dtype) -> None:
    """Of float32 for float16: a gradient of it may have gone through half precision where it was larger."""
    smallest = min(torch.finfo(d).smallest_normal for d in (dtype, torch.float32))
    assert noise_floor(dtype, 0.0, None) == noise_floor(dtype, smallest, None) > 0.0


def test_where_torch_holds_less_than_a_digit_ten_times_its_error_is_noise() -> None:
    assert noise_floor(torch.float32, 1.0, 0.5) == 5.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_allows_little_more_than_twice_torchs_error(dtype: torch.dtype) -> None:
    ulp = torch.finfo(dtype).eps
    assert noise_floor(dtype, 1.0, ulp) == 3 * ulp
    assert noise_floor(dtype, 1.0, ulp, numel=3) == 6 * ulp


def test_the_rounding_of_an_op_is_a_share_of_the_largest_element_down_to_the_smallest_normal_number() -> None:
    smallest = torch.finfo(torch.float16).smallest_normal
    assert rounding_of(torch.float16, 3.0) == 3 * rounding(torch.float16)
    assert rounding_of(torch.float16, smallest / 100) == rounding_of(torch.float16, smallest) == 2 * 2.0**-24
