"""The eager, float64 and ONNX executions of one graph, value by value."""

from __future__ import annotations

import weakref
from typing import Any

import onnx
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, fx, nn

from dort_compare.backends import CompiledGraph
from dort_compare.errors import ExecutionError
from dort_compare.runtime import SessionSettings
from dort_compare.trace import lockstep, onnx_values
from dort_compare.trace.onnx import initializers, optimized

CPU = [("CPUExecutionProvider", {})]


def eager_values(graph_module: fx.GraphModule, inputs: Any) -> Any:
    """What torch's kernels compute, by node."""
    return ((step.node, step.value) for step in lockstep(graph_module, inputs) if isinstance(step.value, Tensor))


def float64_values(graph_module: fx.GraphModule, inputs: Any) -> Any:
    """What the referee computes, by node."""
    return ((step.node, step.exact) for step in lockstep(graph_module, inputs) if isinstance(step.value, Tensor))


def tensors_returned(graph: CompiledGraph) -> dict[str, Tensor]:
    """By FX node, what the graph module itself returns."""
    returned = graph.graph_module.graph.output_node().args[0]
    results = graph.graph_module(*graph.runs[0].inputs)
    pairs = zip(returned, results, strict=True)
    return {node.name: value for node, value in pairs if isinstance(node, fx.Node) and node.op == "call_function"}


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 2), nn.Softmax(dim=-1))


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_eager_trace_is_what_the_graph_module_computes(graphs_of: Any, dynamic: bool) -> None:
    for graph in graphs_of(mlp(), torch.randn(5, 3), dynamic=dynamic):
        values = {node.name: value for node, value in eager_values(graph.graph_module, graph.runs[0].inputs)}
        expected = tensors_returned(graph)
        assert expected
        assert all(torch.equal(values[name], value) for name, value in expected.items())


@pytest.mark.parametrize("trace", [eager_values, float64_values])
def test_a_value_is_freed_after_its_last_reader(graphs_of: Any, trace: Any) -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(6):
            x = x.relu() + 1
        return x

    (graph,) = graphs_of(chain, torch.randn(3))
    seen: list[weakref.ref[Tensor]] = []
    most_alive = 0
    for _, value in trace(graph.graph_module, graph.runs[0].inputs):
        seen.append(weakref.ref(value))
        del value
        most_alive = max(most_alive, sum(ref() is not None for ref in seen))
    assert len(seen) == 12
    assert most_alive <= 2


def test_constants_of_the_graph_are_not_computed_values(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: x * torch.tensor([1.0, 2.0, 3.0]), torch.ones(3))
    assert any(node.op == "get_attr" for node in graph.graph_module.graph.nodes)
    assert all(node.op == "call_function" for node, _ in eager_values(graph.graph_module, graph.runs[0].inputs))


@pytest.mark.parametrize("autocast", [torch.float16, torch.bfloat16])
def test_the_float64_trace_knows_no_other_float(graphs_of: Any, autocast: torch.dtype) -> None:
    model = mlp()

    def mixed(x: Tensor) -> Tensor:
        with torch.autocast("cpu", autocast):
            return model(x).float()

    x = torch.randn(5, 3)
    forward, backward = graphs_of(mixed, x)
    exact: dict[str, Tensor] = {}
    for graph in (forward, backward):
        for node, value in float64_values(graph.graph_module, graph.runs[0].inputs):
            assert not value.is_floating_point() or value.dtype == torch.float64, node
            exact.setdefault(str(node.target), value)
    expected = model.double()(x.double()).detach()
    torch.testing.assert_close(exact["aten._softmax.default"], expected, rtol=1e-12, atol=1e-12)


def test_the_float64_trace_leaves_integers_and_booleans(graphs_of: Any) -> None:
    def function(x: Tensor, i: Tensor) -> Tensor:
        return torch.where(x > 0, x, i + 1).half().to(torch.int32)

    (graph,) = graphs_of(function, torch.randn(3), torch.tensor([1, 2**53 + 1, 3]))
    dtypes = {value.dtype for _, value in float64_values(graph.graph_module, graph.runs[0].inputs)}
    assert dtypes == {torch.float64, torch.bool, torch.int64, torch.int32}


def test_the_float64_trace_has_the_sizes_that_the_eager_one_reads_off_the_data(graphs_of: Any) -> None:
    def function(x: Tensor) -> Tensor:
        y = (x * 0.1) * 10
        return x[y > x].exp() * (y > x).sum().item()

    x = torch.tensor([0.4327, 1.2511, 0.3335])  # float32 rounds all three up, float64 none
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        (graph,) = graphs_of(function, x)
    steps = lockstep(graph.graph_module, graph.runs[0].inputs)
    exact = [(s.value, s.exact) for s in steps if isinstance(s.exact, Tensor) and s.exact.dtype == torch.float64]
    assert all(value.shape == other.shape for value, other in exact)
    torch.testing.assert_close(exact[-1][1], x.double().exp() * 3, rtol=1e-12, atol=0)


def test_the_onnx_trace_yields_every_value_in_order(graphs_of: Any) -> None:
    for graph in graphs_of(mlp(), torch.randn(5, 3)):
        model = graph.onnx_model
        values = list(onnx_values(model, graph.named_inputs(), graph.program.providers))
        assert [name for name, _ in values] == [name for node in model.graph.node for name in node.output]
        by_name = dict(values)
        results = graph.program(*graph.runs[0].inputs)
        for output, result in zip(graph.signature.outputs, results, strict=True):
            if output.name in by_name:
                torch.testing.assert_close(by_name[output.name], result)


def test_the_onnx_trace_keeps_dtypes_that_numpy_lacks(graphs_of: Any) -> None:
    (graph,) = graphs_of(lambda x: (x.bfloat16() > 0).to(torch.bfloat16), torch.randn(3))
    values = dict(onnx_values(graph.onnx_model, graph.named_inputs(), CPU))
    assert {torch.bfloat16, torch.bool} <= {value.dtype for value in values.values()}


def test_a_missing_input_is_named() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float x, float z) => (float y) { y = Add(x, z) }'
    )
    with pytest.raises(ExecutionError, match="no value for the model's inputs z"):
        list(onnx_values(model, {"x": torch.tensor(1.0)}, CPU))


def test_a_model_without_nodes_has_an_empty_trace() -> None:
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 20]> g (float x) => () { }')
    assert list(onnx_values(model, {"x": torch.tensor(1.0)}, CPU)) == []


def test_initializers_of_every_dtype() -> None:
    tensors = {
        "bf": onnx.helper.make_tensor("bf", onnx.TensorProto.BFLOAT16, [2], [1.5, -2.0]),
        "flag": onnx.helper.make_tensor("flag", onnx.TensorProto.BOOL, [], [True]),
        "none": onnx.helper.make_tensor("none", onnx.TensorProto.INT64, [0], []),
    }
    found = initializers(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], list(tensors.values()))))
    assert torch.equal(found["bf"], torch.tensor([1.5, -2.0]).bfloat16())
    assert torch.equal(found["flag"], torch.tensor(True))
    assert torch.equal(found["none"], torch.empty(0, dtype=torch.int64))


@pytest.mark.parametrize("as_object", [False, True])
def test_optimizing_leaves_the_callers_options_alone(graphs_of: Any, as_object: bool) -> None:
    (graph,) = graphs_of(lambda x: x.t().exp().t() + 1, torch.randn(3, 4))
    given: Any = ort.SessionOptions() if as_object else {"intra_op_num_threads": 1}
    model = optimized(graph.onnx_model, SessionSettings(session_options=given), CPU)
    assert len(model.graph.node) < len(graph.onnx_model.graph.node)
    assert given.optimized_model_filepath == "" if as_object else given == {"intra_op_num_threads": 1}
