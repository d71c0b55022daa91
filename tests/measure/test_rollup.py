"""Errors by module, gradients ranked, and scatter as a floor."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from dort_compare.measure.before_onnx.modules import common_path
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.gaps import Gaps
from dort_compare.measure.noise.scatter import SAMPLES, Scatter
from dort_compare.measure.outcome import outcome_rows, within
from dort_compare.measure.rollup import by_module, ranked
from dort_compare.measure.rows import Row

ONE = torch.ones(2)


def row(module: str, status: Any, error: float) -> Row:
    gap = distance(ONE, ONE + error)
    where = {"fx_node": "mul", "call": "mul", "target": "aten.mul.Tensor", "source": "", "dtype": "float32"}
    return Row("forward", 0, module=module, shape=(2,), status=status, local=gap, noise_floor=0.25, **where)


def test_a_module_counts_what_lies_in_it_and_stands_before_it() -> None:
    rows = [row("a.b", "ok", 0.125), row("c", "diverges", 1.0), row("a", "inherits", 0.0), row("a.b", "ok", 0.25)]
    found = by_module(rows)
    assert [(e.module, e.values, e.diverging, e.inheriting, e.worst) for e in found] == [
        ("", 4, 1, 1, 4.0),
        ("a", 3, 0, 1, 1.0),
        ("a.b", 2, 0, 0, 1.0),
        ("c", 1, 1, 0, 4.0),
    ]


def test_gradients_are_ranked_by_their_distance_in_floors() -> None:
    eager = {"small": ONE, "large": ONE * 1000, "lost": ONE}
    compiled = {"small": ONE + 1e-4, "large": ONE * 1000 + 0.01}
    rows = outcome_rows("debug", "gradient", eager, compiled, dict, None)
    assert [(r.name, round(ratio)) for r, ratio in ranked(rows)[1:]] == [("small", 10), ("large", 1)]
    assert ranked(rows)[0][0].name == "lost"
    assert ranked(rows)[0][1] == math.inf


@pytest.mark.parametrize(
    ("paths", "path"),
    [(["a.b.c", "a.b"], "a.b"), (["a", "b"], ""), (["a.b", ""], ""), (["ab.c", "ab.d"], "ab"), (["ab", "ac"], "")],
)
def test_the_innermost_module_that_all_lie_in(paths: list[str], path: str) -> None:
    assert common_path(paths) == path


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


def test_rows_within_scatter_are_ok() -> None:
    rows = outcome_rows("debug", "output", {"y": ONE, "z": ONE}, {"y": ONE + 1, "z": ONE + 1}, dict, None)
    assert [r.ok for r in rows] == [False, False]
    settled = within(rows, {("output", "y"): Scatter(2.0, choices=math.inf)})
    assert [(r.name, r.ok) for r in settled] == [("y", True), ("z", False)]
    assert settled[0].noise_floor == 2.0
