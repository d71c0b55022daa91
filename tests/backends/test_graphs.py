"""All graphs that torch.compile makes of a model: which there are, what they share, who calls them."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from trained import Broken, gradients

from dort_compare import DebugBackend, compare
from dort_compare.dump import graphs_in
from dort_compare.provenance import COMPILE_ID, metadata_of


def assert_close(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def ids(backend: DebugBackend) -> list[tuple[str, str | None]]:
    return [(graph.phase, graph.compile_id) for graph in backend.graphs]


# Compile ids.


def test_graphs_on_both_sides_of_a_break_bear_ids_of_their_own() -> None:
    backend = DebugBackend()
    torch.compile(Broken(), backend=backend)(torch.randn(2, 3)).sum().backward()
    assert ids(backend) == [("forward", "0/0"), ("forward", "1/0"), ("backward", "1/0"), ("backward", "0/0")]
    for graph in backend.graphs:
        assert metadata_of(graph.onnx_model)[COMPILE_ID] == graph.compile_id


def test_a_recompiled_graph_counts_on() -> None:
    backend = DebugBackend()
    compiled = torch.compile(lambda x: x.tanh(), backend=backend, dynamic=False)
    outputs = [compiled(torch.randn(rows, 3, requires_grad=True)) for rows in (2, 4)]
    for output in outputs:
        output.sum().backward()
    assert ids(backend) == [("forward", "0/0"), ("forward", "0/1"), ("backward", "0/0"), ("backward", "0/1")]


def test_pieces_of_one_graph_share_its_id() -> None:
    backend = DebugBackend()
    torch.compile(lambda x: torch.linalg.eigvalsh(x * 2) + 1, backend=backend)(torch.randn(3, 3))
    assert ids(backend) == [("inference", "0/0")] * 2


def test_outside_of_torch_compile_there_is_no_id() -> None:
    backend = DebugBackend()
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: x * 2, tracing_mode="fake")(torch.ones(2))
    backend.compile_graph(graph, [torch.ones(2)], phase="inference")
    assert ids(backend) == [("inference", None)]


@pytest.mark.parametrize("dynamic", [False, True])
def test_report_and_dump_hold_the_ids(tmp_path: Path, dynamic: bool) -> None:
    report = compare(Broken(), (torch.randn(4, 3),), backward=True, dynamic=dynamic, dump=tmp_path / "dump")
    assert report.verdict == "agree", str(report)
    dumped = {(graph.phase, graph.compile_id) for graph in graphs_in(tmp_path / "dump")}
    told = report.as_json()["graphs"]
    assert {(graph["phase"], graph["compile_id"]) for graph in told} == dumped
    assert {graph["graph"] for graph in told} == set(range(4))


@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_stand_in_the_order_of_execution(dynamic: bool) -> None:
    """With dynamic shapes, the backward of what stands before a break is compiled before what stands after it."""
    report = compare(Broken(), (torch.randn(4, 3),), backward=True, dynamic=dynamic)
    order = [(graph["phase"], graph["compile_id"]) for graph in report.as_json()["graphs"]]
    assert order == [("forward", "0/0"), ("forward", "1/0"), ("backward", "1/0"), ("backward", "0/0")]
    graphs = [graph.index for graph in report.graphs]
    rows = [row.graph for row in report.rows]
    assert rows == sorted(rows, key=graphs.index)


# What graphs share with the caller and with each other.


def test_a_cache_is_written_in_place() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(2, 6, 3))
            self.project = nn.Linear(3, 3)

        def forward(self, x: Tensor, position: Tensor) -> Tensor:
            self.cache.index_copy_(1, position, self.project(x))
            self.cache[:, 0] += 1
            return self.cache.sum(1)

    model = Cached()
    other = copy.deepcopy(model)
    compiled = torch.compile(other, backend="dort")
    with torch.no_grad():
        for position in range(4):
            x = torch.randn(2, 1, 3)
            assert_close(compiled(x, torch.tensor([position])), model(x, torch.tensor([position])))
    assert_close(other.cache, model.cache)


def test_inputs_that_share_memory_are_written_once() -> None:
    def function(x: Tensor, view: Tensor) -> tuple[Tensor, Tensor]:
        x.mul_(2)
        view.add_(1)
        return x + 1, view * 2

    x, y = torch.ones(4), torch.ones(4)
    got, expected = torch.compile(function, backend="dort")(x, x[1:]), function(y, y[1:])
    assert_close((x, *got), (y, *expected))


def test_tied_weights_get_one_gradient() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embed(ids).tanh())

    model, ids = Tied(), torch.tensor([[1, 3, 3], [0, 6, 1]])
    assert_close(gradients(model, torch.compile(model, backend="dort")(ids)), gradients(model, model(ids)))


def test_a_module_used_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x).tanh())

    model, x = Twice(), torch.randn(2, 3)
    compiled = torch.compile(model, backend="dort")
    assert_close(gradients(model, compiled(x) + compiled(2 * x)), gradients(model, model(x) + model(2 * x)))


def test_backward_passes_add_up() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    other = copy.deepcopy(model)
    compiled = torch.compile(other, backend="dort")
    for _ in range(3):
        x = torch.randn(5, 3)
        model(x).sum().backward()
        loss = compiled(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert_close([p.grad for p in other.parameters()], [2 * p.grad for p in model.parameters()])


def test_checkpointed_activations_are_computed_again_in_backward() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(checkpoint(lambda y: self.first(y).exp().cos(), x, use_reentrant=False))

    model, x, backend = Checkpointed(), torch.randn(2, 3), DebugBackend()
    assert_close(gradients(model, torch.compile(model, backend=backend)(x)), gradients(model, model(x)))
    assert "Exp" in {node.op_type for node in backend.graphs[-1].onnx_model.graph.node}


@pytest.mark.parametrize("norm", [nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.BatchNorm1d(8)], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype, norm: nn.Module) -> None:
    """torch's kernels of the norms save float32 statistics where it traces half precision."""
    report = compare(nn.Sequential(nn.Linear(8, 8), norm), (torch.randn(4, 8),), backward=True, autocast=dtype)
    assert report.verdict == "agree", str(report)
    assert str(dtype).removeprefix("torch.") in {row.dtype for row in report.rows}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_model_moves_between_modes(mode: Callable[[], Any]) -> None:
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    compiled = torch.compile(model, backend="dort")
    compiled(x).sum().backward()
    with mode():
        assert_close(compiled(x), model(x))
    assert_close(gradients(model, compiled(x)), gradients(model, model(x)))


# Control flow.


def test_control_flow_on_data_works_in_pieces() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        return y.exp() if y.sum() > 0 else y.cos() - 1

    backend = DebugBackend()
    compiled = torch.compile(function, backend=backend)
    for sign in (1, -1, 1):
        x = sign * torch.rand(4)
        assert_close(compiled(x), function(x))
    assert [graph.compile_id for graph in backend.graphs] == ["0/0", "1/0", "2/0"]
    assert backend.fallbacks == []


# Threads.


def together(call: Callable[[int], Any], count: int = 8) -> list[Any]:
    """Calls ``call(0)``, ``call(1)``, ... at the same moment, each in a thread."""
    barrier = threading.Barrier(count)

    def wait_and_call(i: int) -> Any:
        barrier.wait()
        return call(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(wait_and_call, range(count)))


def test_threads_that_call_one_model() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.0), nn.Linear(16, 4))
    backend = DebugBackend(max_runs=3)
    compiled = torch.compile(model, backend=backend)
    xs = [torch.randn(5, 16) for _ in range(8)]
    expected = [gradients(model, model(x)) for x in xs]

    def train(i: int) -> bool:
        for _ in range(5):
            torch.testing.assert_close(gradients(model, compiled(xs[i])), expected[i], rtol=1e-4, atol=1e-4)
        return True

    assert all(together(train))
    kept = [len(graph.runs) for graph in backend.graphs if graph.phase == "forward"]
    assert max(kept) == 3  # threads that meet in dynamo may compile a graph each, and then all run one
    numbers = [run.number for graph in backend.graphs for run in graph.runs]
    assert len(set(numbers)) == len(numbers)


def test_threads_that_compile_at_once(tmp_path: Path) -> None:
    backend = DebugBackend(dump=tmp_path)
    models = [nn.Sequential(nn.Linear(3, 2 + i), nn.Tanh()) for i in range(8)]

    def train(i: int) -> bool:
        x = torch.randn(4, 3)
        output = torch.compile(models[i], backend=backend)(x)
        assert_close(gradients(models[i], output), gradients(models[i], models[i](x)))
        return True

    assert all(together(train))
    assert [graph.index for graph in backend.graphs] == list(range(16))
    entries = json.loads((tmp_path / "manifest.json").read_text())["graphs"]
    assert list(entries) == [f"model_{n}" for n in range(16)]
    assert all("inputs" in entry for entry in entries.values())


def test_a_copy_of_a_compiled_model_has_the_same_backend() -> None:
    backend = DebugBackend()
    compiled = torch.compile(nn.Linear(3, 2), backend=backend)
    x = torch.randn(2, 3)
    compiled(x)
    copied = copy.deepcopy(compiled)
    with torch.no_grad():
        copied.weight.zero_()
        assert torch.equal(copied(x), copied.bias.expand(2, 2))
    torch.testing.assert_close(compiled(x), compiled._orig_mod(x))
