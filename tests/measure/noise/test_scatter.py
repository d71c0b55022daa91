"""How far right results scatter, as a floor."""

from __future__ import annotations

import math

import pytest
import torch

from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.gaps import Gaps
from dort_compare.measure.noise.scatter import SAMPLES, Scatter

ONE = torch.ones(2)


def covers(scatter: Scatter, expected: torch.Tensor, got: torch.Tensor, plain: float = 0.0) -> bool:
    return scatter.covers(distance(expected, got), Gaps.between(expected, got, least=plain))


@pytest.mark.parametrize(
    ("astray", "ok"), [(0, True), (3, True), (4, False)], ids=["none", "less than one in sixteen", "more"]
)
def test_elements_that_scatter_far_are_no_measure_for_the_others(astray: int, ok: bool) -> None:
    values = torch.ones(64)
    moved = values + torch.where(torch.arange(64) < 4, 1.0, 1e-6)
    scatter = Scatter.of(values, moved, SAMPLES[0])
    got = moved + torch.where(torch.arange(64) >= 64 - astray, 1e-2, 0.0)
    assert covers(scatter, values, got) is ok
    assert covers(scatter, values, got, plain=0.1)


def test_scatter_covers_what_lies_within_four_times_the_widest_sample() -> None:
    scatter = Scatter.of(ONE, ONE + 0.25, SAMPLES[0]) | Scatter.of(ONE, ONE, SAMPLES[1])
    assert covers(scatter, ONE, ONE - 1)
    assert not covers(scatter, ONE, ONE + 1.125)


def test_scatter_covers_nan_only_where_a_sample_has_some_and_never_another_dtype() -> None:
    nan = torch.tensor([math.nan, 1.0])
    assert not covers(Scatter.of(ONE, ONE + 1, SAMPLES[0]), ONE, nan)
    wild = Scatter.of(ONE, nan, SAMPLES[0])
    assert covers(wild, ONE, nan)
    assert not covers(wild, ONE, ONE.double())


@pytest.mark.parametrize(("more", "ok"), [(0, True), (3, True), (4, False), (60, False)])
@pytest.mark.parametrize("elsewhere", [0.0, 1e-6], ids=["equal", "close"])
def test_scatter_covers_few_nan_where_no_sample_has_some(more: int, ok: bool, elsewhere: float) -> None:
    values, places = torch.ones(64), torch.arange(64)
    shown = torch.where(places < 4, math.nan, values + elsewhere)
    got = torch.where(places < 4 + more, math.nan, values + elsewhere)
    assert covers(Scatter.of(values, shown, SAMPLES[0]), values, got) is ok


@pytest.mark.parametrize("far", [2.0**124, 2.0**127])
def test_gaps_as_large_as_numbers_get_are_told_apart(far: float) -> None:
    values, places = torch.ones(64), torch.arange(64)
    shown = torch.where(places < 4, torch.inf, torch.where(places < 32, values + far, values))
    scatter = Scatter.of(values, shown, SAMPLES[0])
    assert covers(scatter, values, shown)
    assert not covers(scatter, values, torch.where(places < 12, torch.inf, values))


def test_a_sample_of_nan_alone_is_no_floor_for_numbers() -> None:
    lost = torch.full((2,), math.nan)
    scatter = Scatter.of(ONE, lost, SAMPLES[0]) | Scatter.of(ONE, ONE + 0.25, SAMPLES[0])
    assert not covers(scatter, ONE, ONE + 1.125)
