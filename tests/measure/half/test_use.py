"""How a half-precision tensor uses its dtype."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dort_compare.measure.half.use import use_of

HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


@HALVES
@given(power=st.integers(-8, 8), numel=st.sampled_from([1, 7, 5000]))
def test_head_room_counts_powers_of_two(dtype, power, numel):
    exact = torch.full((numel,), -(2.0**power), dtype=torch.float64)
    use = use_of(exact.to(dtype), exact)
    assert use.head_room == pytest.approx(math.log2(torch.finfo(dtype).max) - power)
    assert (use.overflowed, use.underflowed, use.wrong) == (0, 0, 0)


def test_what_overflows_is_counted():
    exact = torch.tensor([1e5, 2.0, -1e6, math.inf], dtype=torch.float64)
    use = use_of(exact.half(), exact)
    assert (use.largest, use.overflowed) == (2.0, 0.5)


def test_nan_where_float64_is_finite_is_counted():
    assert use_of(torch.tensor([math.nan, 1.0]).half(), torch.ones(2).double()).overflowed == 0.5


@HALVES
@pytest.mark.parametrize(
    "mask", [-65504.0, torch.finfo(torch.float32).min, -math.inf, 2 * torch.finfo(torch.bfloat16).min]
)
def test_a_mask_is_neither_near_the_range_nor_an_overflow(dtype, mask):
    exact = torch.tensor([1.5, mask, mask * (1 + 1e-4), -3.0], dtype=torch.float64)
    use = use_of(exact.to(dtype), exact)
    assert (use.overflowed, use.wrong) == (0, 0)
    assert use.largest in (3.0, 65504.0, 65536.0)
    if dtype == torch.float16:
        assert use.head_room > 14


def test_what_vanishes_weighs_by_what_it_was():
    exact = torch.tensor([1e-9, 1e-9, 2e-9, 1.0], dtype=torch.float64)
    assert use_of(exact.half(), exact).underflowed < 1e-8
    exact = exact[:3]
    assert use_of(exact.half(), exact).underflowed == 1.0
    assert use_of(exact.bfloat16(), exact).underflowed == 0.0


def test_zeros_underflow_nothing():
    use = use_of(torch.zeros(3).half(), torch.zeros(3).double())
    assert (use.head_room, use.underflowed, use.wrong) == (math.inf, 0, 0)


@pytest.mark.parametrize("numel", [100, 100_000])
def test_elements_that_err_by_more_than_themselves_are_counted(numel):
    exact = torch.linspace(1, 2, numel, dtype=torch.float64).reshape(10, -1)
    value = exact.clone()
    value[:3] *= -1
    assert use_of(value.bfloat16(), exact).wrong == pytest.approx(0.3, abs=0.03)


def test_what_cancels_to_zero_has_not_underflowed():
    use = use_of(torch.zeros(4).bfloat16(), torch.full((4,), 0.0025).double())
    assert (use.underflowed, use.wrong) == (0, 1)
