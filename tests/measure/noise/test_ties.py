"""The order of equal elements, and of what is chosen unsorted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from of_function import Of
from torch import Tensor

import dort_compare
from dort_compare.lowering import registered, registry

aten = torch.ops.aten


def of_experts(indices: Callable[[Tensor], Tensor]) -> Any:
    """Many equal numbers, ordered, and what they order."""
    torch.manual_seed(0)
    experts = torch.randint(4, (200,))
    return dort_compare.compare(Of(lambda x, e: x[indices(e)].sum() + 0 * x), (torch.randn(200), experts))


@pytest.mark.parametrize(
    "indices",
    [
        torch.argsort,
        lambda e: e.sort(stable=False)[1],
        lambda e: torch.topk(e.float(), 150)[1],
        lambda e: e.float().where(e > 0, math.nan).view(20, 10).nanmedian(0, keepdim=True)[1],
        lambda e: torch.full((4, 5), math.nan).where(e[:20].view(4, 5) > 4, math.nan).nanmedian(1)[1],
        lambda e: e.mode(0, keepdim=True)[1],
    ],
    ids=["sort", "not stable", "topk", "nanmedian", "nanmedian of NaN", "mode"],
)
def test_the_order_of_equal_elements_is_open(indices):
    report = of_experts(indices)
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize(
    "indices",
    [lambda e: e.kthvalue(3).indices, lambda e: (e + math.nan).nanmedian(0).indices, lambda e: e.median(0).indices],
    ids=["kthvalue", "nanmedian of NaN", "median"],
)
def test_a_model_may_return_any_of_equal_elements(indices):
    """In reverse that in the middle stays where it is."""
    torch.manual_seed(0)
    for count in (5, 200):
        assert dort_compare.compare(Of(indices), (torch.randint(4, (count,)).float(),)).verdict == "agree"


UNSORTED = [(8, 3), (64, 8), (300, 100)]


def routed(n: int, k: int) -> Any:
    """A mixture of ``n`` experts of which each token chooses ``k``, as DeepSeek V3 does, and the scores themselves."""

    def function(x: Tensor, w: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        scores, experts = x.sigmoid().topk(k, sorted=False)
        return torch.einsum("tk,tkd->td", scores, w[experts]), counts.topk(2, sorted=False)[0].sum(-1)

    torch.manual_seed(0)
    inputs = (torch.randn(5, n).requires_grad_(), torch.randn(n, 4).requires_grad_(), torch.randint(9, (5, n)))
    return dort_compare.compare(Of(function), inputs, backward=True)


@pytest.mark.parametrize(("n", "k"), UNSORTED)
def test_the_order_of_what_is_chosen_unsorted_is_open(n, k):
    report = routed(n, k)
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize(("n", "k"), UNSORTED)
def test_what_is_chosen_unsorted_may_be_returned(n, k):
    torch.manual_seed(0)
    report = dort_compare.compare(
        Of(lambda x: x.topk(k, sorted=False)), (torch.randn(5, n).requires_grad_(),), backward=True
    )
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("backwards", [0, 1], ids=["values", "indices"])
def test_what_is_chosen_belongs_to_its_place(monkeypatch, backwards):
    original = registered()[aten.topk.default]

    def apart(op: Any, x: Any, k: int, *args: Any, **kwargs: Any) -> Any:
        found = list(original(op, x, k, *args, **kwargs))
        found[backwards] = op.Gather(found[backwards], op.const([*range(k)][::-1], torch.int64), axis=1)
        return tuple(found)

    monkeypatch.setitem(registry._TABLE, aten.topk.default, apart)
    report = routed(64, 8)
    assert {row.target for row in report.rows if row.status == "diverges"} == {"aten.topk.default"}, str(report)
    assert report.first_divergence is not None
    assert "right on torch's operands" not in str(report).split("values:")[0], str(report)


@pytest.mark.parametrize("seed", range(5))
def test_each_order_of_what_is_returned_unsorted_is_right(seed):
    torch.manual_seed(seed)
    report = dort_compare.compare(Of(lambda x: x.topk(3, sorted=False)), (torch.randn(4, 8),))
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize(("n", "k"), UNSORTED)
def test_what_is_chosen_is_not(monkeypatch, n, k):
    original = registered()[aten.topk.default]

    def lowest(op: Any, x: Any, k: int, dim: int = -1, largest: bool = True, *more: Any, **others: Any) -> Any:
        return original(op, x, k, dim, not largest, *more, **others)

    monkeypatch.setitem(registry._TABLE, aten.topk.default, lowest)
    report = routed(n, k)
    assert {cause.target for cause in report.causes} == {"aten.topk.default"}


def test_a_wrong_order_is_not(monkeypatch):
    original = registered()[aten.sort.default]

    def backwards(op: Any, x: Any, dim: int = -1, descending: bool = False) -> Any:
        return original(op, x, dim, not descending)

    monkeypatch.setitem(registry._TABLE, aten.sort.default, backwards)
    report = of_experts(torch.argsort)
    assert report.first_divergence is not None
    assert report.first_divergence.target in ("aten.sort.default", "operator.getitem")
