"""Where a graph is cut into windows of values changes nothing that is said of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from of_function import Of
from torch import Tensor, fx
from torch.nn import functional as F

from dort_compare import Report, compare
from dort_compare.measure.judging import Judge
from dort_compare.trace import four_executions
from dort_compare.trace.float64 import Float64
from dort_compare.trace.four_executions import Executed

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "first of two": lambda x: torch.var_mean(x, -1, keepdim=True)[0] * x,
    "both": lambda x: torch.add(*torch.var_mean(x, -1, keepdim=True)),
    "batch norm in half precision": lambda x: F.batch_norm(x.half(), None, None, training=True),
    "layer norm": lambda x: F.layer_norm(x, (6,)),
    "values and places": lambda x: x.max(-1)[0] * x.max(-1)[1] + x.sort(-1)[0].sum(-1),
    "parts": lambda x: x.chunk(3, -1)[2] * x.chunk(3, -1)[0],
    "lstm": lambda x: torch.lstm_cell(x, (x, x), torch.ones(24, 6) / 9, torch.ones(24, 6) / 7)[1],
}


def report_of(name: str) -> Report:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    return compare(Of(CALLS[name]), (x,), backward=True)


@pytest.mark.parametrize("name", CALLS)
def test_the_results_of_one_call_may_be_in_different_windows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = report_of(name)
    monkeypatch.setattr(four_executions, "_STEPS", 1)
    apart = report_of(name)
    assert whole.verdict == apart.verdict == "agree", str(apart)
    assert [(row.fx_node, row.local) for row in apart.rows] == [(row.fx_node, row.local) for row in whole.rows]


def test_nothing_is_computed_ahead_of_a_value_that_fills_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[str, str]] = []
    run, row = Float64.run_beside, Judge.row

    def beside(self: Float64, node: fx.Node, expected: Any) -> Any:
        events.append(("computed", node.name))
        return run(self, node, expected)

    def judged(self: Judge, executed: Executed, *rest: Any) -> Any:
        events.append(("judged", executed.step.node.name))
        return row(self, executed, *rest)

    monkeypatch.setattr(Float64, "run_beside", beside)
    monkeypatch.setattr(Judge, "row", judged)
    compare(Of(lambda x: x.sin().cos().tanh()), (torch.ones(2**18),), memory=1)
    calls = [event for event in events if event[1] in ("sin", "cos", "tanh")]
    assert calls == [(what, name) for name in ("sin", "cos", "tanh") for what in ("computed", "judged")]
