"""Where a graph is cut into windows of values changes nothing that is said of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from of_function import Of
from torch import Tensor
from torch.nn import functional as F

from dort_compare import Report, compare
from dort_compare.trace import executions

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
    monkeypatch.setattr(executions, "_STEPS", 1)
    apart = report_of(name)
    assert whole.verdict == apart.verdict == "agree", str(apart)
    assert [(row.fx_node, row.local) for row in apart.rows] == [(row.fx_node, row.local) for row in whole.rows]
