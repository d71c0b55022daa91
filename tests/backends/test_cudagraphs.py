"""CUDA graphs without a GPU: what is recorded when, and what is not; ``tests/gpu`` launches them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from dort_compare.backends import Options, cudagraphs
from dort_compare.backends.captured import in_torchs_storages
from dort_compare.errors import UsageError
from dort_compare.runtime import providers

GPU = torch.device("cuda", 0)
DRAWS = """<ir_version: 10, opset_import: ["" : 18]>
agraph (bool c) => (float[2] y) { y = If (c) <
    then_branch = yes () => (float[2] a) { a = RandomNormal<shape = [2]>() },
    else_branch = no () => (float[2] b) { b = Constant<value_floats = [1.0, 2.0]>() }> }"""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"freeze": True}, "choose one"),
        ({"session_options": ort.SessionOptions()}, "give session_options as a mapping"),
        ({"providers": [("cuda", {"user_compute_stream": "7"})]}, "leave user_compute_stream out"),
    ],
)
def test_what_does_not_go_together_is_refused(
    given: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "_prepare_cuda", lambda: None)
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with pytest.raises(UsageError, match=words):
        Options.of(cudagraphs=True, **given)
    Options.of(**given)


def test_on_the_cpu_it_is_said_that_there_is_none(said_by: Any) -> None:
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    compiled = torch.compile(model, backend="dort", options={"cudagraphs": True})
    for _ in range(3):
        assert torch.allclose(compiled(x), model(x))
        compiled(x).sum().backward()
    (said,) = said_by("dort_compare")
    assert said.startswith("forward graph: no CUDA graph")
    assert said.endswith("is not on a GPU")


# What keeps a graph from being recorded.


def graph_of(*values: Any) -> fx.GraphModule:
    graph = fx.Graph()
    for i, value in enumerate(values):
        graph.placeholder(f"x{i}").meta["val"] = value
    graph.output(())
    return fx.GraphModule(nn.Module(), graph)


def on(device: str, *sizes: Any) -> torch.Tensor:
    with FakeTensorMode(shape_env=ShapeEnv()):
        return torch.empty(sizes, device=device)


@torch.library.custom_op("dort_compare_tests::counted", mutates_args=(), tags=[torch.Tag.cudagraph_unsafe])
def counted(x: torch.Tensor) -> torch.Tensor:
    """What a launch would not call."""
    return x + 1


COUNTED = torch.ops.dort_compare_tests.counted.default


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], "it has no tensors"),
        ([on("cuda:0", 2), on("cpu", 2)], "x1 is not on a GPU"),
        ([on("cuda:0", 2), on("cuda:1", 2)], "several GPUs"),
        ([on("cuda:0", 2, ShapeEnv().create_unbacked_symint())], "dynamic=False"),
        ([on("cuda:0", 2), ShapeEnv().create_unbacked_symint()], "dynamic=False"),
    ],
)
def test_what_shows_before_a_graph_has_run(values: Sequence[Any], words: str) -> None:
    assert words in (cudagraphs._obstacle(graph_of(*values), []) or "")


def test_what_has_effects_is_not_launched_for_those_would_be_left_out(said_by: Any) -> None:
    compiled = torch.compile(torch.linalg.inv, backend="dort", options={"cudagraphs": True})
    for _ in range(3):
        assert torch.equal(compiled(torch.eye(3)), torch.eye(3))
    assert ["has other effects" in line for line in said_by("dort_compare")] == [True]


def test_nothing_keeps_a_graph_of_known_sizes_on_a_gpu_from_being_recorded() -> None:
    assert cudagraphs._obstacle(graph_of(on("cuda:0", 2), 3, None), []) is None


def test_what_torch_says_is_unsafe_to_record() -> None:
    graph_module = graph_of(on("cuda:0", 2))
    (x,) = graph_module.graph.find_nodes(op="placeholder")
    with graph_module.graph.inserting_after(x):
        graph_module.graph.call_function(COUNTED, (x,)).meta["val"] = on("cuda:0", 2)
    assert "counted" in (cudagraphs._obstacle(graph_module, []) or "")


def test_random_numbers_of_onnx_runtime_even_within_a_branch() -> None:
    found = cudagraphs._obstacle(graph_of(on("cuda:0", 2)), [ir.from_onnx_text(DRAWS)])
    assert found == "ONNX Runtime's RandomNormal would draw the same numbers again"


# What is recorded when.


class Torch:
    """In the place of torch's recorder, and of what it is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        self.unmoved: list[set[int]] = []
        self.given: list[tuple[int, set[int]]] = []
        self.refused: str | None = None
        monkeypatch.setattr(cudagraphs, "_obstacle", lambda *_: None)
        monkeypatch.setattr(cudagraphs, "refusal", self.tried)
        monkeypatch.setattr(cudagraphs, "cudagraphify_impl", self.recorded)
        manager = SimpleNamespace(set_to_running_backward=lambda: self.events.append("backward has come"))
        monkeypatch.setattr(cudagraphs, "get_manager", lambda *_, **__: manager)

    def tried(self, boxed: Any, arguments: list[Any], device: torch.device) -> str | None:
        self.events.append("tried")
        return self.refused

    def recorded(self, function: Any, inputs: list[Any], unmoved: list[int], **_: Any) -> Callable[..., Any]:
        def launch(arguments: list[Any]) -> Any:
            self.events.append("launched")
            places = [argument.data_ptr() for argument in arguments]
            self.unmoved.append({places[i] for i in unmoved})
            self.given.append((places[-1], {*places}))
            return function(arguments)

        return launch


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Torch:
    return Torch(monkeypatch)


def train(steps: int) -> nn.Module:
    """A step of a compiled model, so many times, its gradients held against eager's."""
    model, x = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)), torch.randn(4, 3)
    compiled = torch.compile(model, backend="dort", options={"cudagraphs": True})
    for _ in range(steps):
        model.zero_grad()
        model(x).square().sum().backward()
        right = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        model.zero_grad()
        compiled(x).square().sum().backward()
        found = [parameter.grad for parameter in model.parameters()]
        torch.testing.assert_close(found, right)
    return model


def test_the_second_call_is_tried_and_the_rest_launched(recorder: Torch) -> None:
    train(3)
    assert recorder.events == ["tried", "launched", "tried", "launched", "launched", "launched"]


def test_what_stays_in_its_place_is_said(recorder: Torch) -> None:
    """The parameters of the forward graph, all but the gradient that arrives of the backward one."""
    model = train(2)
    forward, backward = recorder.unmoved
    (_, in_forward), (arrived, in_backward) = recorder.given
    assert forward == {parameter.data_ptr() for parameter in model.parameters()}
    assert in_forward - forward, "the input moves"
    assert backward == in_backward - {arrived}


def test_without_the_forward_graph_no_backward_graph_is_recorded(recorder: Torch, said_by: Any) -> None:
    recorder.refused = "it is said so"
    train(4)
    assert recorder.events == ["tried"]
    assert said_by("dort_compare") == ["forward graph: no CUDA graph is made of it: it is said so"]


def test_beside_a_recorded_forward_graph_one_that_is_not_says_that_the_backward_pass_has_come(
    recorder: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cudagraphs, "refusal", lambda *_: "no" if "launched" in recorder.events else None)
    train(3)
    assert recorder.events == ["launched", "backward has come", "launched", "backward has come"]


def test_a_first_backward_pass_after_recorded_forward_ones(recorder: Torch) -> None:
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    compiled = torch.compile(model, backend="dort", options={"cudagraphs": True})
    for _ in range(3):
        y = compiled(x)
    y.sum().backward()
    assert recorder.events == ["tried", "launched", "launched", "backward has come"]


def test_reset_of_dynamo_forgets_what_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[bool] = []
    monkeypatch.setattr("torch._inductor.cudagraph_trees.reset_cudagraph_trees", lambda: forgotten.append(True))
    torch._dynamo.reset()
    forgotten.clear()
    torch.compile(nn.Linear(3, 2), backend="dort")(torch.randn(1, 3))
    torch._dynamo.reset()
    assert forgotten


# Where results lie.


def test_marks_that_a_launch_would_lose_are_resolved() -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    conjugate, negated = in_torchs_storages(lambda _: [z.conj(), z.conj().imag], [])
    assert torch.view_as_real(conjugate).tolist() == [[1, -2], [3, 4]]
    assert negated.tolist() == [-2, 4]
    assert (conjugate.is_conj(), negated.is_neg()) == (False, False)


def test_a_result_that_lies_where_an_argument_has_lain_is_a_result() -> None:
    def run(arguments: list[Any]) -> list[Any]:
        memory = arguments.pop().numpy()  # which outlives the argument, and its storage
        return [torch.from_numpy(memory)]

    for _ in range(20):
        x = torch.ones(4)
        arguments = [x]
        place = x.data_ptr()
        del x
        (result,) = in_torchs_storages(run, arguments)
        assert result.data_ptr() != place


def test_results_lie_in_storages_of_torch_and_share_them() -> None:
    x, memory = torch.randn(3, 4), torch.randn(20)
    results = in_torchs_storages(
        lambda arguments: [arguments[0][1], memory[:6].view(2, 3), memory.as_strided((2, 2), (1, 5), 3), None, 7], [x]
    )
    view, first, second, nothing, number = results
    assert view.data_ptr() == x[1].data_ptr()
    assert torch.equal(first, memory[:6].view(2, 3))
    assert torch.equal(second, memory.as_strided((2, 2), (1, 5), 3))
    assert second.stride() == (1, 5)
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    assert first.untyped_storage().data_ptr() != memory.untyped_storage().data_ptr()
    assert (nothing, number) == (None, 7)
