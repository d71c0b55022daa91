"""A backward graph reads what the model writes in place as it was before."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from dort_compare import DebugBackend, compare


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


def test_they_are_compared() -> None:
    torch.manual_seed(0)
    report = compare(Adversaries(), (torch.randn(4, 3), torch.randn(4, 6)), backward=True)
    assert report.verdict == "agree", report.causes


def test_what_is_written_and_not_read_again_is_not_copied() -> None:
    backend = DebugBackend()
    torch.compile(nn.BatchNorm1d(3), backend=backend)(torch.randn(4, 3)).sum().backward()
    forward = backend.graphs[0].graph_module.graph
    assert not forward.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
