"""Recorded inputs are those of the run, whatever happens to the caller's tensors afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dort_compare import DebugBackend
from dort_compare.errors import StaleRecordError


def by_name(graph, run: int) -> dict[str, Tensor]:
    return dict(graph.named_inputs(run))


@pytest.mark.parametrize("max_runs", [0, 1, 2])
def test_runs_are_bounded(max_runs: int) -> None:
    backend = DebugBackend(max_runs=max_runs)
    compiled = torch.compile(nn.Linear(3, 2), backend=backend)
    for _ in range(3):
        compiled(torch.randn(1, 3)).sum().backward()
    assert [len(graph.runs) for graph in backend.graphs] == [max_runs, max_runs]


@pytest.mark.parametrize("fused", [False, True])
def test_an_optimizer_step_does_not_reach_what_was_recorded(fused: bool) -> None:
    model = nn.Linear(3, 2)
    backend = DebugBackend(max_runs=3)
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, fused=fused)
    weights = []
    for _ in range(3):
        weights.append(model.weight.detach().clone())
        optimizer.zero_grad()
        compiled(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()
    forward = backend.graphs[0]
    recorded = [next(t for t in run.inputs if t.shape == (2, 3)) for run in forward.runs]
    assert all(map(torch.equal, recorded, weights))
    assert not torch.equal(weights[0], weights[2])


def test_running_statistics_that_eager_torch_moves_are_recorded_as_they_were() -> None:
    model, x = nn.BatchNorm1d(3), torch.randn(4, 3)
    backend, means = DebugBackend(max_runs=2), list[torch.Tensor]()
    compiled = torch.compile(model, backend=backend)
    for _ in range(2):
        means.append(model.running_mean.clone())
        model.eval()
        compiled(x)
        model.train()(x + 3)
    recorded = [run.inputs for run in backend.graphs[0].runs]
    assert all(any(torch.equal(mean, t) for t in run) for mean, run in zip(means, recorded, strict=True))


def test_a_parameter_is_copied_once_while_it_does_not_change() -> None:
    model = nn.Linear(3, 2)
    backend = DebugBackend(max_runs=3)
    compiled = torch.compile(model, backend=backend)
    compiled(torch.randn(4, 3))
    compiled(torch.randn(4, 3))
    with torch.no_grad():
        model.weight.zero_()
    compiled(torch.randn(4, 3))
    first, second, third = (next(t for t in run.inputs if t.shape == (2, 3)) for run in backend.graphs[0].runs)
    assert second is first
    assert third is not first
    assert first.data_ptr() != model.weight.data_ptr()


def test_an_argument_may_be_reused_for_the_next_batch() -> None:
    backend = DebugBackend()
    x = torch.ones(3)
    torch.compile(lambda x: x * 2, backend=backend)(x)
    x.zero_()
    assert torch.equal(backend.graphs[0].runs[0].inputs[0], torch.ones(3))


def test_an_activation_changed_in_place_is_told() -> None:
    backend = DebugBackend()
    x = torch.randn(3, requires_grad=True)
    doubled, square = torch.compile(lambda x: (doubled := x * 2, doubled * doubled), backend=backend)(x)
    square.sum().backward()
    backward = backend.graphs[1]
    assert backward.runs[0].inputs
    with torch.no_grad():
        doubled.add_(1)
    with pytest.raises(StaleRecordError, match="graph input mul was changed in place"):
        _ = backward.runs[0].inputs


def test_backward_records_its_own_inputs() -> None:
    backend = DebugBackend()
    x = torch.randn(3, requires_grad=True)
    torch.compile(torch.tanh, backend=backend)(x).backward(torch.full((3,), 2.0))
    forward, backward = backend.graphs
    assert [value.name for value in forward.signature.inputs] == ["primals_1"]
    named = by_name(backward, 0)
    assert torch.equal(named["tangents_1"], torch.full((3,), 2.0))
    (activation,) = named.keys() - {"tangents_1"}
    torch.testing.assert_close(named[activation], x.detach().tanh())


def test_results_of_the_first_run_are_kept_where_asked_for():
    backend = DebugBackend()
    compiled = torch.compile(lambda x: x * 2, backend=backend)
    with backend.keeping() as kept:
        first = compiled(torch.ones(3))
        compiled(torch.zeros(3))
    compiled(torch.zeros(3))
    (results,) = kept.values()
    (value,) = results.values().values()
    assert value.tolist() == [2, 2, 2]
    first.add_(1)
    assert results.values() is None  # by reference: what was written since is no result any more
