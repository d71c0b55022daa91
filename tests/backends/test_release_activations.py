"""A backward graph lets go, as it runs, of what the forward graph has saved for it."""

from __future__ import annotations

import logging
import operator
import re
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.multiprocessing.reductions import StorageWeakRef

from dort_compare.backends import release_activations, slow_in_onnx
from dort_compare.backends.building import Building
from dort_compare.backends.cut import split_graph
from dort_compare.backends.pieces import pieces_of
from dort_compare.errors import UnsupportedGraphError
from dort_compare.lowering.lowered import Lowered
from dort_compare.runtime.binding import Binding

MANY = 1024, 1024
"""Elements of a value of 4 MiB."""


def backward_of_tanh(tangents_1: Tensor, *saved: Tensor) -> Tensor:
    for each in saved:
        tangents_1 = tangents_1 * (1 - each * each)
    return tangents_1


def split_backward(graph_module: fx.GraphModule) -> fx.GraphModule | None:
    freeing = release_activations.parts(graph_module)
    return split_graph(graph_module, {}, freeing) if freeing else None


def traced(layers: int, tangents: int = 1) -> fx.GraphModule:
    with torch._subclasses.FakeTensorMode():
        return make_fx(backward_of_tanh)(torch.empty(tangents, *MANY), *(torch.empty(MANY) for _ in range(layers)))


def test_pieces_free_about_as_much_as_one_another() -> None:
    split = split_backward(traced(31))
    assert split is not None
    sizes = [sum(n.op == "call_function" for n in piece.graph.nodes) for piece in pieces_of(split).values()]
    assert len(sizes) == 8
    assert max(sizes) <= 1.5 * min(sizes)


def test_what_is_handed_on_is_one_value_and_no_derivative() -> None:
    split = split_backward(traced(31))
    assert split is not None
    handed = [len(piece.graph.output_node().all_input_nodes) for piece in pieces_of(split).values()]
    assert handed == [1] * 8


def test_pieces_compute_what_the_graph_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_activations, "_LEAST", 8)
    inputs = [torch.rand(3, generator=torch.Generator().manual_seed(i)) for i in range(9)]
    graph = make_fx(backward_of_tanh, tracing_mode="fake")(*inputs)
    split = split_backward(graph)
    assert split is not None
    assert torch.equal(split(*inputs), graph(*inputs))


def test_the_results_of_a_call_stay_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_activations, "_LEAST", 1)

    def function(tangents_1: Tensor, *saved: Tensor) -> Tensor:
        for each in saved:
            low, high = torch.aminmax(tangents_1 * each)
            tangents_1 = tangents_1 * low + high
        return tangents_1

    split = split_backward(make_fx(function, tracing_mode="fake")(*(torch.rand(3) for _ in range(6))))
    assert split is not None
    for piece in pieces_of(split).values():
        calls = {node for node in piece.graph.nodes if node.op == "call_function"}
        assert all(node.args[0] in calls for node in calls if node.target is operator.getitem)


@pytest.mark.parametrize("names", [["tangents_1"], ["tangents_1", "primals_1", "primals_2", "primals_3"]])
def test_a_graph_with_little_to_free_stays_whole(names: list[str]) -> None:
    """Parameters do not count, they outlive the graph."""
    graph = traced(len(names) - 1)
    for node, name in zip(graph.graph.find_nodes(op="placeholder"), names, strict=True):
        node.name = name
    assert split_backward(graph) is None


def test_no_cut_hands_on_more_than_a_piece_frees() -> None:
    assert split_backward(traced(31, tangents=64)) is None


@pytest.mark.parametrize(("carried", "pieces"), [(3, 8), (5, 5), (9, 3), (31, 1)])
def test_there_are_fewer_pieces_where_much_is_carried_through(carried: int, pieces: int) -> None:
    def function(tangents_1: Tensor, *saved: Tensor) -> list[Tensor]:
        first = [tangents_1 + i for i in range(carried)]
        last = backward_of_tanh(tangents_1, *saved)
        return [each * last for each in first]

    with torch._subclasses.FakeTensorMode():
        graph = make_fx(function)(*(torch.empty(MANY) for _ in range(32)))
    split = split_backward(graph)
    assert (len(pieces_of(split)) if split else 1) == pieces


def gradients_are_eagers(model: nn.Module, dynamic: bool) -> None:
    x = torch.randn(64, 64)
    gradients = {}
    for backend in ("eager", "dort"):
        model.zero_grad()
        torch.compile(model, backend=backend, dynamic=dynamic)(x).square().sum().backward()
        gradients[backend] = [p.grad for p in model.parameters()]
    torch.testing.assert_close(gradients["dort"], gradients["eager"])


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def test_a_graph_of_which_a_piece_is_refused_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_activations, "_LEAST", 64 * 64)
    built: list[int] = []
    lowered = Building.lowered

    def refusing(self: Building, graph_module: fx.GraphModule) -> Lowered:
        calls = len(graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default))
        if self.phase == "backward":
            built.append(calls)
            if len(built) == 2:
                raise UnsupportedGraphError("not this piece")
        return lowered(self, graph_module)

    monkeypatch.setattr(Building, "lowered", refusing)
    options = {"fallback": False, "cache": False}
    torch.compile(Layers(), backend="dort", options=options)(torch.randn(64, 64)).sum().backward()
    assert len(built) == 3
    assert built[-1] > 2 * max(built[:2])


def test_the_log_counts_the_pieces(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(release_activations, "_LEAST", 64 * 64)
    caplog.set_level(logging.INFO, "dort_compare.log")
    torch.compile(Layers(), backend="dort")(torch.randn(64, 64)).sum().backward()
    forward, backward = (r.getMessage() for r in caplog.records if " ONNX nodes" in r.getMessage())
    assert " pieces" not in forward
    assert re.search(r"ONNX nodes in [4-8] pieces; lower", backward)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_training_step_frees_activations_and_its_gradients_are_right(
    dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_activations, "_LEAST", 64 * 64)
    inputs: list[list[StorageWeakRef]] = []
    alive: list[float] = []
    run = Binding.run

    def watched(self: Binding, tensors: list[Tensor], options: Any) -> list[Tensor]:
        inputs.append([StorageWeakRef(t.untyped_storage()) for t in tensors if not isinstance(t, nn.Parameter)])
        if len(inputs) > 2:
            first_piece = inputs[1]
            alive.append(sum(not each.expired() for each in first_piece) / len(first_piece))
        return run(self, tensors, options)

    monkeypatch.setattr(Binding, "run", watched)
    torch.manual_seed(0)
    gradients_are_eagers(Layers(), dynamic=dynamic)
    assert len(inputs) > 4
    assert alive[-1] == 0, alive


class Looked(nn.Module):
    """Layers between which rows of a table are looked up, whose gradients are sums at indices."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.table = Layers(), nn.Parameter(torch.randn(16, 64))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers.layers:
            x = torch.tanh(layer(x)) * self.table[torch.arange(len(x)) % 16]
        return x


def test_what_is_left_to_torch_is_cut_out_of_the_parts(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(release_activations, "_LEAST", 64 * 64)
    monkeypatch.setattr(slow_in_onnx, "SIZES", {torch.ops.aten.index_put: 64})
    caplog.set_level(logging.INFO, "dort_compare.log")
    torch.manual_seed(0)
    gradients_are_eagers(Looked(), dynamic=False)
    (backward,) = (
        r.getMessage() for r in caplog.records if "backward" in r.getMessage() and "pieces" in r.getMessage()
    )
    assert int(re.search(r"in (\d+) pieces", backward)[1]) >= 8, backward
    assert "8 operators in eager torch" in backward
