"""Outputs that right results scatter as far as."""

from __future__ import annotations

import math

import torch

from dort_compare.measure.noise.scatter import Scatter
from dort_compare.measure.outcome import outcome_rows
from dort_compare.measure.outcome_scatters import settled

ONE = torch.ones(2)


def test_rows_within_scatter_are_ok() -> None:
    rows = outcome_rows("debug", "output", {"y": ONE, "z": ONE}, {"y": ONE + 1, "z": ONE + 1}, dict, None)
    assert [r.ok for r in rows] == [False, False]
    found = settled(rows, {("output", "y"): Scatter(2.0, choices=math.inf)})
    assert [(r.name, r.ok) for r in found] == [("y", True), ("z", False)]
    assert found[0].noise_floor == 2.0
