"""What stands in the way of lowering a graph is found in one walk, all of it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from dort_compare.errors import UnsupportedGraphError
from dort_compare.fx_graph import call_of
from dort_compare.lowering import lower, registry
from dort_compare.lowering.survey import Survey, survey
from dort_compare.provenance import FX_NODE
from dort_compare.runtime import newest_opset

aten = torch.ops.aten


def traced(function: Callable[..., Any], *args: Any) -> fx.GraphModule:
    return make_fx(function, tracing_mode="fake")(*args)


def surveyed(function: Callable[..., Any], *args: Any) -> Survey:
    return survey(traced(function, *args), "inference", newest_opset())


def by_name(found: Survey) -> dict[str, str]:
    return {node.name: reason for node, reason in found.refused.items()}


def written(found: Survey) -> list[str]:
    return list(dict.fromkeys(node.metadata_props[FX_NODE] for node in found.graph))


def test_a_graph_that_can_be_lowered_has_nothing_refused() -> None:
    found = surveyed(lambda x: x * 2 + x, torch.ones(3))
    assert found.refused == {}
    assert written(found) == ["mul", "add"]


def test_every_refusal_is_found_and_the_rest_is_written() -> None:
    def function(x: Tensor) -> Tensor:
        values, *_ = torch.linalg.svd(x * 2, full_matrices=False)
        return torch.linalg.eigvalsh(values + 1) - 1

    found = surveyed(function, torch.rand(3, 4))
    assert by_name(found) == {"_linalg_svd": "no lowering", "_linalg_eigh": "no lowering"}
    assert written(found) == ["mul", "add", "sub"]


def test_what_a_failed_lowering_wrote_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(op: Any, x: Any) -> Any:
        op.Exp(op.Neg(x))
        raise KeyError("a fault")

    monkeypatch.setitem(registry._TABLE, aten.tanh.default, broken)
    found = surveyed(lambda x: (x * 2).tanh() + 1, torch.ones(3))
    assert by_name(found) == {"tanh": "KeyError: 'a fault'"}
    assert written(found) == ["mul", "add"]


def test_a_lowerings_own_refusal_is_told_without_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(op: Any, x: Any) -> Any:
        raise op.unsupported("not on a Tuesday")

    monkeypatch.setitem(registry._TABLE, aten.tanh.default, refusing)
    assert by_name(surveyed(lambda x: x.tanh(), torch.ones(3))) == {"tanh": "not on a Tuesday"}


def test_complex_operands_and_results_are_refused() -> None:
    found = surveyed(lambda x: torch.view_as_real(torch.fft.fft(x + 1).acos().sin()).sum(), torch.ones(4))
    assert by_name(found) == {"acos": "it takes a complex64 tensor", "sin": "it takes a complex64 tensor"}
    assert written(found) == ["add", "_fft_r2c", "view_as_real", "sum_1"]


def test_a_complex_input_is_refused_where_the_graph_is_lowered() -> None:
    graph = traced(lambda z: z * 2, torch.ones(3, dtype=torch.complex64))
    with pytest.raises(UnsupportedGraphError, match=r"FX node mul .* takes a complex64 tensor"):
        lower(graph, "inference", newest_opset())
    assert list(by_name(survey(graph, "inference", newest_opset())).values()) == ["it takes a complex64 tensor"]


def test_an_element_that_is_not_computed_refuses_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(op: Any, x: Any, *_: Any, **__: Any) -> Any:
        return op.Neg(x), None

    monkeypatch.setitem(registry._TABLE, aten.topk.default, half)
    found = surveyed(lambda x: torch.topk(x, 3)[1] + 1, torch.rand(3))
    assert by_name(found) == {"topk": "result 1 of aten.topk.default (FX node topk) is not computed"}


def test_the_call_of_an_element_is_what_it_is_read_from() -> None:
    graph = traced(lambda x: torch.topk(x, 2)[0], torch.rand(3)).graph
    (element,) = [node for node in graph.nodes if node.target is operator.getitem][:1]
    assert call_of(element).target is aten.topk.default
    assert call_of(call_of(element)) is call_of(element)
