"""Outputs and gradients are judged each by itself, in float64 where that decides."""

from __future__ import annotations

import torch
from torch import Tensor

from dort_compare.measure.outcome import outcome_of
from dort_compare.trace import Outcome

EXACT = {"near": torch.ones(2, dtype=torch.float64), "far": torch.ones(2, dtype=torch.float64)}
EAGER = {"near": torch.tensor([1.0, 1.0 + 6e-6]), "far": torch.tensor([1.0, 1.001])}
GOT = {"near": torch.tensor([1.0, 1.0 + 14e-6]), "far": torch.tensor([1.0, 1.0005])}


def judged(names: list[str], precision: torch.dtype) -> dict[str, tuple[bool, bool]]:
    """By name, whether it is ok and whether it was held against float64."""
    calls = []

    def exact() -> Outcome:
        calls.append(None)
        return Outcome(EXACT)

    def only(values: dict[str, Tensor]) -> Outcome:
        return Outcome({name: values[name].to(precision) for name in names})

    rows = outcome_of("debug", only(EAGER), only(GOT), exact, precision)
    assert bool(calls) == any(row.onnx_vs_float64 is not None for row in rows)
    return {row.name: (row.ok, row.onnx_vs_float64 is not None) for row in rows}


def test_float64_excuses_what_departs_and_does_not_accuse_what_agrees() -> None:
    """What eager gets less right than the backend does is noise."""
    assert judged(["near"], torch.float32) == {"near": (True, False)}
    assert judged(["far"], torch.float32) == {"far": (True, True)}
    assert judged(["near", "far"], torch.float32) == {"near": (True, False), "far": (True, True)}


def test_half_precision_is_always_held_against_float64() -> None:
    assert judged(["near"], torch.bfloat16) == {"near": (True, True)}
