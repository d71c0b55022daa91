"""A backward graph reads what the model writes in place as it was before."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, fx, nn
from torch._functorch._aot_autograd.descriptors import (
    InputMutationAOTOutput,
    PlainAOTInput,
    SavedForBackwardsAOTOutput,
)
from torch.nn.functional import dropout
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.checkpoint import checkpoint

from dort_compare import DebugBackend, compare
from dort_compare.backends import forward_backward
from dort_compare.backends.forward_backward import cut_joint


class Adversaries(nn.Module):
    """Each call of the discriminator writes its buffers anew."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Linear(3, 6)
        self.discriminator = nn.Sequential(spectral_norm(nn.Linear(6, 5)), nn.Tanh())

    def forward(self, noise: Tensor, real: Tensor) -> Tensor:
        made = self.generator(noise)
        known = self.discriminator(real).mean() - self.discriminator(made.detach()).mean()
        return known - self.discriminator(made).mean()


class Counted(nn.Module):
    """Multiplies with a buffer, and then writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight * self.seen.clone()
        self.seen.add_(x.detach().abs())
        return y


class Viewed(nn.Module):
    """Saves a view of what it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(3) for _ in range(3))

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        row, (one, two, three) = state[0], self.weights
        y = x * one * row.sin() + x * two * row.cos() + x * three * row.exp()
        state.add_(1)
        return y


def test_a_view_of_what_is_written() -> None:
    x, state = torch.randn(3), torch.rand(4, 3)
    gradients, written = [], []
    for backend in ("eager", "dort"):
        model, given = Viewed(), state.clone()
        torch.compile(model, backend=backend)(x, given).sum().backward()
        gradients.append([p.grad for p in model.parameters()])
        written.append(given)
    torch.testing.assert_close(gradients[1], gradients[0])
    torch.testing.assert_close(written[1], state + 1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_that_is_kept_can_be_differentiated_again(dynamic: bool) -> None:
    model, x = nn.Sequential(nn.Linear(6, 6), nn.Tanh()), torch.randn(5, 6, requires_grad=True)
    loss = torch.compile(model, backend="dort", dynamic=dynamic)(x).square().sum()
    (once,) = torch.autograd.grad(loss, x, retain_graph=True)
    (again,) = torch.autograd.grad(loss, x)
    assert torch.equal(once, again)
    torch.testing.assert_close(once, torch.autograd.grad(model(x).square().sum(), x)[0])


@pytest.mark.parametrize("backend", ["dort", "dort_debug"])
@pytest.mark.parametrize("kind", [Adversaries, Counted])
def test_gradients_and_buffers(kind: type[nn.Module], backend: str) -> None:
    torch.manual_seed(0)
    model = kind()
    eager, inputs = copy.deepcopy(model), [torch.randn(4, 3), torch.randn(4, 6)]
    compiled = torch.compile(model, backend=backend)
    for _ in range(3):
        for function in (eager, compiled):
            function(*inputs if kind is Adversaries else [torch.ones(3)]).square().sum().backward()
        torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in eager.parameters()])
        torch.testing.assert_close([*model.buffers()], [*eager.buffers()])


class Checkpointed(nn.Module):
    """Saves the state of the generator of random numbers, beside what it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.counted, self.layer = Counted(), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.dropped, self.counted(x), use_reentrant=False)

    def dropped(self, x: Tensor) -> Tensor:
        return dropout(self.layer(x).sin(), 1e-12)


def test_a_buffer_is_written_beside_dropout_that_is_computed_again() -> None:
    gradients = []
    for backend in ("eager", "dort"):
        torch.manual_seed(0)
        model = Checkpointed()
        torch.compile(model, backend=backend)(torch.ones(3)).square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0])


def test_a_neighbour_in_the_memory_of_what_is_written() -> None:
    def function(x: Tensor, neighbour: Tensor, weight: Tensor) -> Tensor:
        neighbour.add_(1)
        return x * weight + (x.t() @ weight).sum()

    found = []
    for compiler in ("eager", "dort"):
        torch._dynamo.reset()
        both, weight = torch.arange(24.0).view(8, 3), torch.ones(4, 3, requires_grad=True)
        torch.compile(function, backend=compiler)(both[:4], both[4:], weight).square().sum().backward()
        found.append((weight.grad, both))
    torch.testing.assert_close(found[1], found[0])


def test_they_are_compared() -> None:
    torch.manual_seed(0)
    report = compare(Adversaries(), (torch.randn(4, 3), torch.randn(4, 6)), backward=True)
    assert report.verdict == "agree", report.causes


def test_what_is_written_and_not_read_again_is_not_copied() -> None:
    backend = DebugBackend()
    torch.compile(nn.BatchNorm1d(3), backend=backend)(torch.randn(4, 3)).sum().backward()
    forward = backend.graphs[0].graph_module.graph
    assert not forward.find_nodes(op="call_function", target=torch.ops.aten.clone.default)


def test_the_size_of_what_is_written_is_no_view_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = fx.Graph()
    state = graph.placeholder("primals_1")
    size = graph.call_function(torch.ops.aten.sym_size.int, (state, 0))
    new = graph.call_function(torch.ops.aten.neg.default, (state,))
    output = graph.output((new, size))
    state.meta = {"val": torch.rand(4), "desc": PlainAOTInput(0)}
    new.meta, size.meta = {"val": torch.rand(4)}, {"val": 4}
    output.meta["desc"] = [InputMutationAOTOutput(PlainAOTInput(0)), SavedForBackwardsAOTOutput(0)]
    whole = fx.GraphModule(nn.Module(), graph)
    monkeypatch.setattr(forward_backward, "min_cut_rematerialization_partition", lambda *_, **__: (whole, whole))
    forward, _ = cut_joint(whole, (), num_fwd_outputs=1)
    assert forward.graph.output_node().args == ((new, size),)
