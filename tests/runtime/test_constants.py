"""Constants beyond what a protobuf holds reach ONNX Runtime all the same, and without a copy."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from dort_compare import DebugBackend, debug_compiler
from dort_compare.compiled import graph_run
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.runtime import constants
from dort_compare.runtime.constants import apart


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "LIMIT", 500)
    monkeypatch.setattr(constants, "LARGE", 100)


def graph_with(*held: Tensor) -> fx.GraphModule:
    """A graph that adds its input to the tensors that it holds."""
    graph = make_fx(lambda x: x * 2 + sum(held), tracing_mode="real")(torch.ones(20, 20))
    assert len([node for node in graph.graph.nodes if node.op == "get_attr"]) >= len(held)
    for node in graph.graph.nodes:
        node.meta.setdefault("val", torch.ones(20, 20))
    return graph


def compiled(graph: fx.GraphModule) -> tuple[Any, Any]:
    storage: dict[str, Any] = {}
    boxed = debug_compiler(graph, [torch.ones(20, 20)], storage=storage, fallback=False)
    return boxed, storage["graphs"][0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
def test_large_constants_are_bound_where_they_are(small_limit: None, dtype: torch.dtype) -> None:
    held = torch.arange(400).reshape(20, 20).to(dtype)
    boxed, graph = compiled(graph_with(held, torch.tensor(1.5)))
    x = torch.randn(20, 20)
    (got,) = boxed([x])
    torch.testing.assert_close(got, x * 2 + held + 1.5, rtol=1e-2, atol=1e-2)
    (bound,) = graph.program._session.constants.values()
    assert bound.data_ptr() in [tensor.data_ptr() for tensor in (held, *graph.graph_module.buffers())]
    assert len(graph.onnx_model.graph.input) == 1
    assert {row.status for row in graph_rows(graph_run(graph))} == {"ok"}


def test_below_the_limit_constants_stay_in_the_model() -> None:
    _, graph = compiled(graph_with(torch.ones(20, 20)))
    assert graph.program._session.constants == {}


@pytest.mark.parametrize("as_proto", [False, True])
def test_a_model_is_taken_apart_and_stays_whole(small_limit: None, as_proto: bool) -> None:
    model = ir.Model(ir.Graph([], [], nodes=[], name="g", opset_imports={"": 20}), ir_version=10)
    for name, size in (("small", 2), ("large", 400)):
        tensor = ir.tensor(torch.ones(size).numpy(), name=name)
        model.graph.register_initializer(ir.Value(name=name, const_value=tensor))
    rest, taken = apart(ir.to_proto(model) if as_proto else model)
    assert [tensor.name for tensor in rest.graph.initializer] == ["small"]
    assert [value.name for value in rest.graph.input] == ["large"]
    assert torch.equal(taken["large"], torch.ones(400))
    assert list(model.graph.initializers) == ["small", "large"]


def test_parameters_are_no_constants() -> None:
    backend = DebugBackend()
    torch.compile(torch.nn.Linear(3, 2), backend=backend)(torch.randn(4, 3))
    assert {tuple(t.dims) for graph in backend.graphs for t in graph.onnx_model.graph.initializer} <= {(), (1,), (2,)}
