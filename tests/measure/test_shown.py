"""A value that only shows an earlier one is not measured again, and its row says what it would say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from of_function import Of
from torch import Tensor
from torch.nn import functional as F

from dort_compare import Report, compare
from dort_compare.compiled import graph_run
from dort_compare.lowering import registered, registry
from dort_compare.measure import judging
from dort_compare.measure.distance.metrics import measure
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.trace import four_executions, parts

aten = torch.ops.aten
CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "shapes": lambda x: x.exp().reshape(6, 4).unsqueeze(0).flatten().view(2, 3, 4).squeeze(),
    "of what is transposed": lambda x: x.exp().t().reshape(4, 6).t().contiguous().view(-1),
    "attention": lambda x: F.scaled_dot_product_attention(*(x.reshape(1, 2, 4, 3) * i for i in (1, 2, 3))),
    "not finite": lambda x: (x * torch.tensor([torch.inf, torch.nan, 1, 0] * 6).view(4, 6)).view(24).exp().view(8, 3),
    "integers": lambda x: x.mul(9).long().view(3, 8).flatten() + 1,
    "empty": lambda x: x[:0].exp().view(0, 2).reshape(2, 0).sum() + x.detach().exp(),
    "the input": lambda x: x.view(24).view(2, 12).sin(),
}


def reports(function: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch, **how: Any) -> list[Report]:
    """One with the values that are shown, one in which each is fetched from ONNX Runtime and measured by itself."""
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    backward = function(x).requires_grad
    found = [compare(Of(function), (x,), backward=backward, **how)]
    monkeypatch.setattr(four_executions, "_shows", lambda *_: None)
    monkeypatch.setattr(parts, "_shown", lambda *_: {})
    return [*found, compare(Of(function), (x,), backward=backward, **how)]


def told(report: Report) -> list[dict[str, Any]]:
    return [dataclasses.replace(row, picture=None).to_json() for row in report.rows]


@pytest.mark.parametrize("how", [{}, {"autocast": torch.bfloat16}, {"optimized": True}], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_the_rows_are_those_of_values_measured_one_by_one(
    name: str, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, each = reports(CALLS[name], monkeypatch, **how)
    assert told(shown) == told(each)
    assert shown.verdict == each.verdict == "agree", str(shown)


def test_so_are_those_of_what_inherits(monkeypatch: pytest.MonkeyPatch) -> None:
    exp = registered()[aten.exp.default]
    monkeypatch.setitem(registry._TABLE, aten.exp.default, lambda op, x: op.Mul(exp(op, x), 1.01))
    shown, each = reports(CALLS["shapes"], monkeypatch)
    assert told(shown) == told(each)
    views = [row for row in shown.rows if row.phase == "forward" and row.target != "aten.exp.default"]
    assert {row.status for row in views} == {"inherits"}
    assert [cause.target for cause in shown.causes] == ["aten.exp.default"]


def test_a_view_of_another_shape_departs(graphs_of: Any) -> None:
    """As in a model that was edited: what is lowered is refused then."""
    (graph,) = graphs_of(lambda x: x.exp().view(3, 8).view(24), torch.ones(4, 6))
    run = graph_run(graph)
    (shape,) = (each for each in run.onnx_model.graph.initializer if each.dims == [2])
    shape.CopyFrom(onnx.numpy_helper.from_array(np.array([8, 3]), shape.name))
    exp, view, last = graph_rows(run)
    assert [row.status for row in (exp, view, last)] == ["ok", "diverges", "ok"]
    assert view.inherited is not None
    assert view.inherited.finding == "shape (8, 3) instead of (3, 8)"
    assert last.inherited is not None
    assert last.inherited.equal


def misshape(model: onnx.ModelProto, shape: list[int]) -> None:
    """Of two views gives the first this shape, and the second that of the first."""
    nodes = list(model.graph.node)
    first, second = (node for node in nodes if node.op_type == "Reshape")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(shape), "wrong"))
    first.input[1], second.input[1] = "wrong", "other"
    nodes.insert(nodes.index(second), onnx.helper.make_node("Shape", [first.output[0]], ["other"]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def test_a_value_of_another_shape_on_torchs_operands_departs(graphs_of: Any) -> None:
    """The memory may be the same all the same: here a view takes its shape from another, which has it wrong."""
    (graph,) = graphs_of(lambda x: x.neg().view(24).sin() + x.exp().view(3, 8).sin().sum(), torch.ones(4, 6))
    run = graph_run(graph)
    misshape(run.onnx_model, [3, 8])
    departing = [row for row in graph_rows(run) if row.status == "diverges"]
    assert [row.target for row in departing] == ["aten.view.default"] * 2
    assert departing[1].local is not None
    assert departing[1].local.finding == "shape (24,) instead of (3, 8)"


def test_a_value_of_another_shape_on_its_own_operands_inherits_it(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: x.neg().view(24).sin() + x.exp().view(24).sin().sum(), torch.ones(4, 6))
    run = graph_run(graph)
    misshape(run.onnx_model, [3, 8])
    views = [row for row in graph_rows(run) if row.target == "aten.view.default"]
    findings = [row.inherited.finding for row in views if row.inherited is not None]
    assert findings == ["shape (3, 8) instead of (24,)"] * 2
    assert [row.local is not None and row.local.equal for row in views] == [False, True]


def test_views_are_indeed_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def counted(expected: Tensor, *others: Any) -> Any:
        measured.append(tuple(expected.shape))
        return measure(expected, *others)

    monkeypatch.setattr(judging, "measure", counted)
    report = compare(Of(lambda x: x.exp().view(3, 8).view(24)), (torch.ones(4, 6),))
    assert measured == [(4, 6)]
    assert [row.shape for row in report.rows] == [(4, 6), (3, 8), (24,)]


@given(hnp.array_shapes(max_dims=3, max_side=6), st.integers(0, 2**31))
def test_the_worst_element_is_found_in_the_new_shape(shape: tuple[int, ...], seed: int) -> None:
    random = np.random.default_rng(seed)
    expected, own = (torch.from_numpy(random.normal(size=shape).astype(np.float32)) for _ in range(2))
    new = (1, expected.numel(), 1)
    found = measure(expected, own, expected, expected.double()).shown(new)
    assert found == measure(*(t.reshape(new) for t in (expected, own, expected, expected.double())))
