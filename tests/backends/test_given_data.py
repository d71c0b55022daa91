"""Inputs, parameters and buffers that a model gives other data, ``x.data = ...``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from dort_compare import DebugBackend, compare
from dort_compare.errors import UnsupportedGraphError

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Halved(nn.Linear):
    """Halves its weight in every call."""

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data = self.weight.data * 0.5
        return super().forward(x)


class Normed(nn.Linear):
    """Has rows of norm 1, and writes them in place, too."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.data = nn.functional.normalize(self.weight.data)
            self.weight.mul_(2)
        return super().forward(x)


class ReadAgain(nn.Linear):
    """Computes in the backward pass again what it has made of the weight that was."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            large = (self.weight * torch.arange(9.0)[:, None, None]).exp()
        self.weight.data = self.weight.data * 0.5
        return (x[:, None, None] * large).mean((1, 3)) + super().forward(x)


class Momentum(nn.Module):
    """An encoder, and one whose parameters follow the first's, as in MoCo."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.query = nn.Linear(3, 3), nn.Linear(3, 4)
        self.key = copy.deepcopy(self.query).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.before(x)
        self.follow()
        return self.query(hidden) * self.key(hidden)

    def follow(self) -> None:
        for query, key in zip(self.query.parameters(), self.key.parameters(), strict=True):
            key.data = key.data * 0.9 + query.data * 0.1


class Grown(nn.Module):
    """A queue that grows, and is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 4)
        self.register_buffer("queue", torch.ones(1, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.lin(x)
        self.queue.data = torch.cat([self.queue, y.detach()])
        return y * self.queue.sum(), self.queue


class Shared(Grown):
    """A buffer whose data are another value's, written through both."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.lin(x)
        total = y.detach().sum(0)
        self.queue.data = total
        total.add_(1)
        self.queue.mul_(2)
        return y * total, y * self.queue


class Twice(Grown):
    """A buffer that is given data twice, the second made of the first."""

    def forward(self, x: Tensor) -> Tensor:
        self.queue.data = self.queue + x.sum()
        self.queue.data = self.queue * 2
        return self.lin(x) * self.queue


class Late(Momentum):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.before(x)
        result = self.query(hidden) * self.key(hidden)
        self.follow()
        return result


class LateProduct(Grown):
    """The gradient of the product reads the new data in eager: it has saved the buffer, not a view."""

    def forward(self, x: Tensor) -> Tensor:
        result = self.lin(x) * self.queue
        self.queue.data = self.queue + 1
        return result * self.queue


class LateLinear(nn.Linear):
    """The gradient of the layer reads the old data in eager: it has saved a view of the weight."""

    def forward(self, x: Tensor) -> Tensor:
        result = super().forward(x)
        self.weight.data = self.weight.data * 0.5
        return super().forward(x) + result


class Shrunk(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.bias.data = self.bias.data.sum()[None]
        return super().forward(x)


class Checkpointed(nn.Linear):
    """Sets data in a part that is computed again in the backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.halved, x.sin(), use_reentrant=False)

    def halved(self, x: Tensor) -> Tensor:
        self.weight.data = self.weight.data * 0.5
        return super().forward(x)


class Renamed(Grown):
    """In eager, what the buffer was called before is the buffer, with its new data."""

    def forward(self, x: Tensor) -> Tensor:
        queue = self.queue.to(x.device)
        self.queue.data = self.queue * 2
        return self.lin(x) * queue


MODELS: dict[str, Callable[[], nn.Module]] = {
    kind.__name__: kind for kind in (Momentum, Grown, Shared, Twice, Late, LateProduct, Renamed)
}
MODELS |= {kind.__name__: partial(kind, 3, 4) for kind in (Halved, Normed, ReadAgain, LateLinear, Shrunk, Checkpointed)}


@pytest.mark.parametrize("backend", ["dort", "dort_debug"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_sets_data_is_trained_as_in_eager(name: str, backend: str) -> None:
    """Results, gradients, parameters and buffers of a model and of a copy in eager, call by call."""
    ours = MODELS[name]()
    eager = copy.deepcopy(ours)
    compiled = torch.compile(ours, backend=backend)
    inputs = [X.clone().requires_grad_() for _ in (ours, eager)]
    for _ in range(3):
        got, wanted = (tree_leaves(model(x)) for model, x in zip((compiled, eager), inputs, strict=True))
        torch.testing.assert_close(got, wanted)
        assert [each.requires_grad for each in got] == [each.requires_grad for each in wanted]
        for results in (got, wanted):
            sum(each.pow(2).sum() for each in results).backward()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
        torch.testing.assert_close(state(ours), state(eager))


def state(model: nn.Module) -> dict[str, Any]:
    held = [*model.named_parameters(), *model.named_buffers()]
    return {name: (tensor.detach(), tensor.grad) for name, tensor in held}


@pytest.mark.parametrize("name", ["Momentum", "Checkpointed"])
def test_it_runs_in_torch_and_says_why(name: str) -> None:
    backend = DebugBackend()
    torch.compile(MODELS[name](), backend=backend)(X)
    reason = "an input is given other memory, x.data = ..."
    assert {(fallback.phase, fallback.reason) for fallback in backend.fallbacks} == {("forward", reason)}
    with pytest.raises(UnsupportedGraphError, match=rf"^{reason}; [^\n]+$"):
        compare(MODELS[name](), (X,), backward=True, fallback=False)


def test_gradients_of_what_has_read_the_input_before_are_found() -> None:
    ours = LateLinear(3, 4)
    eager = copy.deepcopy(ours)
    wanted = torch.autograd.grad(eager(X).exp().sum(), [*eager.parameters()])
    got = torch.autograd.grad(torch.compile(ours, backend="dort")(X).exp().sum(), [*ours.parameters()])
    torch.testing.assert_close(got, wanted)
    assert all(each.all() for each in got)


@pytest.mark.parametrize("backend", ["dort", "dort_debug"])
def test_an_argument_has_the_memory_that_it_is_given(backend: str) -> None:
    def given_another(x: Tensor, y: Tensor) -> Tensor:
        x.data = y
        y.data = x * 2
        x.add_(1)
        return x + y

    def called(function: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
        x, y = torch.ones(3), torch.full((3,), 2.0)
        return [(memory := y.detach()), function(x, y), x, y, torch.tensor(x.data_ptr() == memory.data_ptr())]

    torch.testing.assert_close(called(torch.compile(given_another, backend=backend)), called(given_another))


def test_it_is_no_write() -> None:
    ours, eager = Halved(3, 4), Halved(3, 4)
    versions = [model.weight._version for model in (ours, eager)]
    for model in (torch.compile(ours, backend="dort"), eager):
        model(X)
    assert [model.weight._version for model in (ours, eager)] == versions


def test_what_the_graph_makes_may_be_given_other_data_in_onnx_runtime() -> None:
    def given_to_a_result(x: Tensor) -> Tensor:
        result = x + 1
        result.data = x * 3
        return result.sin()

    backend = DebugBackend()
    x = torch.ones(3)
    torch.testing.assert_close(torch.compile(given_to_a_result, backend=backend)(x), given_to_a_result(x))
    assert backend.fallbacks == []
