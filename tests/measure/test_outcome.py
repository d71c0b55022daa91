"""Outputs and gradients are judged each by itself, in float64 where that decides."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dort_compare import compare
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


def test_a_gradient_of_zeros_may_stand_for_none_and_nothing_else_may() -> None:
    none, zeros = Outcome({}), torch.zeros(2)
    for one, is_right in ((zeros, True), (torch.tensor([0.0, 1e-30]), False), (torch.full((2,), torch.nan), False)):
        (row,) = outcome_of("debug", none, Outcome({}, {"w": one}), lambda: none, torch.float32)
        assert row.ok is is_right
    for eager, compiled in (
        (Outcome({}, {"w": zeros}), none),
        (none, Outcome({"y": zeros})),
        (Outcome({"y": zeros}), none),
    ):
        (row,) = outcome_of("debug", eager, compiled, lambda: none, torch.float32)
        assert not row.ok


def test_an_update_of_one_side_alone_is_held_against_what_the_other_has_left_as_it_was() -> None:
    """A power iteration that has converged may move by a rounding or not at all."""
    own = {"u": torch.ones(2)}
    unchanged = Outcome({}, before=own)
    for moved, is_right in ((1e-7, True), (0.01, False)):
        changed = Outcome({}, updates={"u": torch.ones(2) + moved}, before=own)
        for eager, compiled in ((unchanged, changed), (changed, unchanged)):
            (row,) = outcome_of("debug", eager, compiled, lambda: Outcome({}), torch.float32)
            assert (row.kind, row.name, row.ok) == ("update", "u", is_right)
    assert outcome_of("debug", unchanged, unchanged, lambda: Outcome({}), torch.float32) == ()


class Broken(nn.Module):
    """Its first graph returns what nobody reads beside what its second one reads: autograd gives it a gradient of zero,
    and eager none."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.unread = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y, z = self.read(x), self.unread(x)
        torch._dynamo.graph_break()
        return y.sin() + 0 * len(z)


def test_a_gradient_that_autograd_makes_of_zeros_where_eager_has_none_is_no_departure() -> None:
    report = compare(Broken(), (torch.randn(3, 4),), backward=True)
    assert report.verdict == "agree", str(report)
    assert {row.name for row in report.outputs} >= {"unread.weight"}
