"""What torch.compile is given: by name, as functions, forward and backward, with options, breaks, dynamic shapes."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from trained import Broken, gradients

import dort_compare
from dort_compare import DebugBackend, debug_backend, debug_compiler, onnxrt
from dort_compare.backends import CompiledGraph
from dort_compare.errors import DortError
from dort_compare.lowering import decompositions

EVERY_BACKEND = ["dort", "dort_debug", "onnxrt", onnxrt, debug_backend]


def name_of(backend: Any) -> str:
    return backend if isinstance(backend, str) else f"function {backend.__name__}"


def assert_close(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", EVERY_BACKEND, ids=name_of)
def test_trains_like_eager(backend: Any) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    compiled = torch.compile(model, backend=backend)
    output, expected = compiled(x), model(x)
    assert_close(output, expected)
    assert_close(gradients(model, output), gradients(model, expected))


def test_the_one_line_of_the_readme() -> None:
    model = nn.Linear(3, 2)
    torch.compile(model, backend=dort_compare.debug_backend)(torch.ones(1, 3)).sum().backward()
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, torch.ones(2, 3))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_has_the_phase_it_was_compiled_for(dynamic: bool) -> None:
    backend = DebugBackend()
    compiled = torch.compile(nn.Linear(3, 2), backend=backend, dynamic=dynamic)
    output = compiled(torch.randn(4, 3))
    with torch.no_grad():
        compiled(torch.randn(4, 3))
    output.sum().backward()
    assert sorted(graph.phase for graph in backend.graphs) == ["backward", "forward", "inference"]
    assert [graph.index for graph in backend.graphs] == [0, 1, 2]
    for graph in backend.graphs:
        assert graph.onnx_model.graph.name == graph.phase
        assert ("tangents_1" in [value.name for value in graph.onnx_model.graph.input]) == (graph.phase == "backward")


def test_the_backward_of_dynamic_shapes_is_compiled_before_it_runs() -> None:
    backend = DebugBackend()
    weight = torch.randn(3, requires_grad=True)
    torch.compile(lambda x: (x * weight).tanh(), backend=backend, dynamic=True)(torch.randn(4, 3))
    by_phase = {graph.phase: graph for graph in backend.graphs}
    assert len(by_phase["forward"].runs) == 1
    assert "backward" not in by_phase or by_phase["backward"].runs == []


def test_dynamic_sizes_share_one_graph() -> None:
    backend = DebugBackend(max_runs=3)
    compiled = torch.compile(lambda x: (x * 2).t(), backend=backend, dynamic=True)
    for rows in (4, 5, 6):
        x = torch.randn(rows, 3)
        got = compiled(x)
        assert torch.equal(got, (x * 2).t())
        assert got.stride() == (x * 2).t().stride()
    (graph,) = backend.graphs
    assert [run.inputs[0] for run in graph.runs] == [4, 5, 6]


@pytest.mark.parametrize("backend", EVERY_BACKEND, ids=name_of)
def test_a_graph_break_makes_graphs_on_either_side(backend: Any) -> None:
    model = Broken()
    x = torch.randn(2, 3)
    compiled = torch.compile(model, backend=backend)
    assert_close(gradients(model, compiled(x)), gradients(model, model(x)))


def test_the_graphs_of_a_broken_model_are_numbered_on() -> None:
    storage: dict[str, Any] = {}
    output = torch.compile(Broken(), backend="dort_debug", options={"storage": storage})(torch.randn(2, 3))
    output.sum().backward()
    graphs: list[CompiledGraph] = storage["graphs"]
    assert [graph.phase for graph in graphs] == ["forward", "forward", "backward", "backward"]
    assert [graph.index for graph in graphs] == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_there_is_one_inference_graph(mode: Any) -> None:
    backend = DebugBackend(max_runs=2)
    model = nn.Linear(3, 2)
    compiled = torch.compile(model, backend=backend)
    with mode():
        for _ in range(2):
            x = torch.randn(4, 3)
            assert_close(compiled(x), model(x))
    (graph,) = backend.graphs
    assert graph.phase == "inference"
    assert any(torch.equal(value, x) for value in graph.runs[1].inputs if value.shape == x.shape)


@pytest.mark.parametrize("exporter", ["native", "torch"])
def test_both_exporters_give_eager_results(exporter: str) -> None:
    backend = DebugBackend(exporter=exporter)
    model = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    output, expected = torch.compile(model, backend=backend)(x), model(x)
    assert_close(output, expected)
    assert_close(gradients(model, output), gradients(model, expected))
    assert [graph.phase for graph in backend.graphs] == ["forward", "backward"]
    (opset,) = {
        entry.version for graph in backend.graphs for entry in graph.onnx_model.opset_import if not entry.domain
    }
    assert opset == backend.options.opset


@pytest.mark.parametrize("opset", [18, 21, 23])
def test_target_opset_is_the_models_opset(opset: int) -> None:
    backend = DebugBackend(target_opset=opset)
    torch.compile(nn.Linear(3, 2), backend=backend)(torch.randn(1, 3))
    assert [entry.version for entry in backend.graphs[0].onnx_model.opset_import] == [opset]


@pytest.mark.parametrize("backend", ["dort", "dort_debug"])
def test_unknown_options_are_refused_with_the_nearest_name(backend: str) -> None:
    compiled = torch.compile(nn.Linear(3, 2), backend=backend, options={"provider": ["cpu"]})
    with pytest.raises(Exception, match=r"unknown option 'provider', did you mean 'providers'\?"):
        compiled(torch.ones(1, 3))


def test_options_reach_the_session() -> None:
    storage: dict[str, Any] = {}
    options = {"storage": storage, "providers": "cpu", "session_options": {"intra_op_num_threads": 1}}
    torch.compile(nn.Linear(3, 2), backend="dort_debug", options=options)(torch.ones(1, 3))
    session = storage["graphs"][0].program._session.onnx_session
    assert session.get_session_options().intra_op_num_threads == 1
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_a_debug_backend_takes_its_options_once() -> None:
    compiled = torch.compile(nn.Linear(3, 2), backend=DebugBackend(), options={"max_runs": 2})
    with pytest.raises(Exception, match="give them to DebugBackend"):
        compiled(torch.ones(1, 3))


def test_debug_compiler_serves_an_aot_autograd_of_ones_own(tmp_path: Any) -> None:
    storage: dict[str, Any] = {}

    def compiler(phase: str) -> Any:
        def compile_graph(graph_module: torch.fx.GraphModule, inputs: Any) -> Any:
            prefix = tmp_path / "dump" / "linear"
            return debug_compiler(
                graph_module, inputs, phase=phase, dump_prefix=prefix, target_opset=20, storage=storage
            )

        return compile_graph

    backend = aot_autograd(
        fw_compiler=compiler("forward"), bw_compiler=compiler("backward"), decompositions=decompositions()
    )
    model = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    assert_close(gradients(model, torch.compile(model, backend=backend)(x)), gradients(model, model(x)))
    assert [graph.phase for graph in storage["graphs"]] == ["forward", "backward"]
    assert {entry.version for graph in storage["graphs"] for entry in graph.onnx_model.opset_import} == {20}
    assert sorted(path.name for path in (tmp_path / "dump").glob("*.onnx")) == ["linear_0.onnx", "linear_1.onnx"]


def test_a_missing_lowering_in_the_backward_graph_names_op_and_line() -> None:
    x = torch.randn(3, 3, requires_grad=True)
    with pytest.raises(Exception, match=r"no lowering for aten.* \(FX node .*test_backends.py:\d+\)"):
        torch.compile(lambda x: torch.linalg.svdvals(x), backend="dort", options={"fallback": False})(
            x
        ).sum().backward()


def test_outputs_and_aliases_come_back_as_from_eager() -> None:
    def function(x: Tensor, flags: Tensor) -> dict[str, Any]:
        y = x.relu()
        return {"x": x, "twice": (y, y), "view": y.t(), "flags": ~flags, "none": None, "sum": y.sum(), "n": 3}

    x, flags = torch.randn(2, 3), torch.tensor([True, False])
    got, expected = torch.compile(function, backend="dort")(x, flags), function(x, flags)
    assert got["x"] is x
    assert got["none"] is None
    assert got["n"] == 3
    assert got["view"].stride() == expected["view"].stride()
    assert_close(got, expected)


def test_an_input_written_in_place_is_written() -> None:
    def function(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2

    x, y = torch.ones(3), torch.ones(3)
    assert torch.equal(torch.compile(function, backend="dort")(x), function(y))
    assert torch.equal(x, y)


def test_channels_last_outputs_stay_channels_last() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert torch.compile(lambda x: x.relu(), backend="dort")(x).is_contiguous(memory_format=torch.channels_last)


def test_an_input_without_a_gradient_gets_none() -> None:
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    output, _ = torch.compile(lambda x, y: (x.tanh(), y.detach() * 2), backend="dort")(x, y)
    output.sum().backward()
    assert x.grad is not None
    assert y.grad is None


def test_saved_activations_die_with_the_backward_pass() -> None:
    saved: list[weakref.ref[Tensor]] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(weakref.ref(tensor))
        return tensor

    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh())
    compiled = torch.compile(model, backend="dort")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = compiled(torch.randn(2, 3))
    output.sum().backward()
    parameters = {id(parameter) for parameter in model.parameters()}
    del output
    gc.collect()
    assert saved
    assert all(ref() is None or id(ref()) in parameters for ref in saved)


def test_a_compiled_graph_drops_its_arguments() -> None:
    seen: list[weakref.ref[Tensor]] = []
    backend = DebugBackend(max_runs=0)

    def compile_graph(graph_module: torch.fx.GraphModule, inputs: Any) -> Any:
        boxed = backend.compile_graph(graph_module, inputs, phase="inference")

        def call(arguments: list[Any]) -> Any:
            seen.extend(weakref.ref(argument) for argument in arguments)
            result = boxed(arguments)
            assert arguments == []
            return result

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    compiled = aot_autograd(fw_compiler=make_boxed_func, inference_compiler=compile_graph)
    with torch.no_grad():
        torch.compile(lambda x: x * 2, backend=compiled)(torch.ones(3))
    assert seen
    assert all(ref() is None for ref in seen)


def test_an_error_of_ours_is_a_dort_error() -> None:
    for wrong in ({"exporter": "tensorflow"}, {"max_runs": -1}, {"target_opset": 17}, {"dump_prefix": "a/b"}):
        with pytest.raises(DortError) as caught:
            DebugBackend(**wrong)
        assert "\n" not in str(caught.value)


def test_a_backward_may_run_twice() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    weight = torch.randn(4, 4, requires_grad=True)
    loss = torch.compile(lambda x: (x @ weight).tanh().sum(), backend="dort")(x)
    first = torch.autograd.grad(loss, weight, retain_graph=True)
    second = torch.autograd.grad(loss, weight)
    assert torch.equal(first[0], second[0])
