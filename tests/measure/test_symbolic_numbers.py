"""Numbers that torch has made symbolic, as sizes: one that ONNX Runtime computes otherwise is named as a value is."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from of_function import Of
from torch import Tensor

from dort_compare import compare
from dort_compare.lowering import registry
from dort_compare.lowering.values import dtype_of
from dort_compare.offline import check

CASES: dict[Any, Callable[[Tensor], Any]] = {
    operator.floordiv: lambda x: x.sum(0) / (x.shape[0] // 2),
    operator.mod: lambda x: x * (x.shape[0] % 4),
    operator.truediv: lambda x: x.exp() * (x.shape[0] / 3),
    torch.sym_max: lambda x: x.cos() - torch.sym_max(x.shape[0], 3),
    operator.pow: lambda x: x.sin() / x.shape[0] ** 2,
}
X = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("target", CASES, ids=lambda target: target.__name__)
def test_a_wrong_number_is_the_cause(target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = registry.registered()[target]

    def wrong(op: Any, *args: Any) -> Any:
        number = right(op, *args)
        return op.Add(number, op.const(1, dtype_of(number)))

    monkeypatch.setitem(registry._TABLE, target, wrong)
    found = compare(Of(CASES[target]), (X,), dynamic=True, dump=tmp_path / "dump")
    for report in (found, check(tmp_path / "dump")):
        assert report.verdict == "diverge"
        (cause,) = report.causes
        assert cause.target.endswith(target.__name__)
        assert cause.local is not None
        assert cause.local.max_abs == pytest.approx(1)


@pytest.mark.parametrize("target", CASES, ids=lambda target: target.__name__)
def test_a_right_number_is_no_value_of_the_model(target: Any, tmp_path: Path) -> None:
    found = compare(Of(CASES[target]), (X,), dynamic=True, dump=tmp_path / "dump")
    for report in (found, check(tmp_path / "dump")):
        assert report.verdict == "agree"
        assert all(row.shape in ((7, 3), (3,)) for row in report.rows)


def test_a_wrong_size_that_stops_the_backward_graph_is_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = registry.registered()[operator.floordiv]
    monkeypatch.setitem(registry._TABLE, operator.floordiv, lambda op, *args: op.Add(right(op, *args), op.const(1)))
    repeated = Of(lambda x: x.repeat_interleave(x.shape[0] // 3, 0).cos())
    x = torch.randn(9, 5, requires_grad=True)
    found = compare(repeated, (x,), dynamic=True, backward=True, dump=tmp_path / "dump")
    for report in (found, check(tmp_path / "dump")):
        assert report.verdict == "diverge"
        assert [cause.target for cause in report.causes] == ["operator.floordiv"]
        assert report.rows[-1].reason == "torch refuses what a graph that departs has handed on"
