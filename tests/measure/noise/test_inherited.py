"""Inherited error: what stands for infinity, and what roundings make wild, is no measure for the rest."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from dort_compare.measure.noise.floor import noise_floor
from dort_compare.measure.noise.inherited import InheritedError, inherited_error

ONES = torch.ones(64)
LARGEST = torch.finfo(torch.float32).max


def error(expected: Tensor, got: Tensor, exact: Tensor | None = None, *right: Tensor) -> InheritedError:
    floor = partial(noise_floor, torch.float32, numel=expected.numel())
    return inherited_error(expected, got, floor, torch.float32, exact, *right)


def beside(value: float, rest: Tensor) -> Tensor:
    return torch.cat([rest, torch.full((16,), value)])


@pytest.mark.parametrize("mask", [LARGEST, -LARGEST, -1e9, -1e4, -torch.inf])
@pytest.mark.parametrize("wrong", [False, True])
def test_masks_are_no_measure_for_the_rest(mask: float, wrong: bool) -> None:
    found = error(beside(mask, ONES), beside(mask, ONES * (1.5 if wrong else 1 + 1e-6)))
    assert found.is_noise is not wrong
    assert found.distance.scale == 1 or not wrong


def test_masks_that_differ_are_not_left_out() -> None:
    found = error(beside(LARGEST, ONES), beside(LARGEST / 2, ONES))
    assert not found.is_noise
    assert found.distance.max_abs == pytest.approx(LARGEST / 2)


@pytest.mark.parametrize("wrong", [1.0, 1.5])
def test_wild_elements_are_no_measure_for_the_rest(wrong: float) -> None:
    exact = torch.cat([ONES, ONES]).double()
    expected, got = exact.float() * (1 + 1e-6), exact.float() * (1 - 1e-6)
    expected[64:] += 0.3
    got[64:] -= 0.3
    got[:64] *= wrong
    found = error(expected, got, exact, expected)
    assert found.is_noise is (wrong == 1.0)
    assert error(expected, got, exact).is_noise is (wrong == 1.0)
    if wrong != 1.0:
        assert found.aside is not None
        assert found.aside.tolist() == [False] * 64 + [True] * 64
        assert found.gaps(expected, got, partial(noise_floor, torch.float32)).beyond(0.25)[:64].all()


def test_float64_of_another_computation_is_no_measure() -> None:
    found = error(2 * ONES, 3 * ONES, ONES.double())
    assert not found.is_noise
    assert found.noise_floor < 1e-3
    assert found.expected_vs_float64 is None


def test_a_value_that_errs_as_torch_does_is_noise() -> None:
    assert error(ONES + 0.01, ONES - 0.01, ONES.double()).is_noise
    assert not error(ONES + 0.01, ONES - 0.03, ONES.double()).is_noise
    assert error(ONES + 0.01, ONES - 0.03, ONES.double(), ONES + 0.02).is_noise


def test_shapes_and_dtypes_are_never_noise() -> None:
    assert not error(ONES, ONES[:3], ONES.double()).is_noise
    assert not error(ONES, ONES.double(), ONES.double()).is_noise
