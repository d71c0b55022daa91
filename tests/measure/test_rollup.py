"""Errors by module, and gradients ranked."""

from __future__ import annotations

import math
from typing import Any

import torch

from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.outcome import outcome_rows
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
