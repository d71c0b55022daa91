"""Parameters as constants of the session: never stale ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from dort_compare.backends import Options
from dort_compare.errors import UsageError
from dort_compare.runtime import frozen, program


class Net(nn.Module):
    """A tied weight, a transposed one, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.turned = nn.Parameter(torch.randn(3, 6).t())
        self.register_buffer("shift", torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).tanh()) @ self.turned + self.shift


@pytest.fixture(params=["by ONNX Runtime", "as on a GPU"], autouse=True)
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who folds: ONNX Runtime does so with constants on the CPU alone."""
    if request.param == "as on a GPU":
        monkeypatch.setattr(program, "_are_on_cpu", lambda constants: not constants)
    return request.param


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[frozenset[str]]:
    """The names of the constants of every session with some."""
    names: list[frozenset[str]] = []
    make, fold = program.make_session, program.folded

    def counting(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("frozen"):
            names.append(frozenset(kwargs["frozen"]))
        return make(*args, **kwargs)

    def counting_ours(model: Any, constants: Mapping[str, Tensor], make: Any) -> Any:
        names.append(frozenset(constants))
        return fold(model, constants, make)

    monkeypatch.setattr(program, "make_session", counting)
    monkeypatch.setattr(program, "folded", counting_ours)
    return names


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="dort", options={"freeze": True, "fallback": False})


@torch.no_grad()
def assert_right(model: nn.Module, function: Any, x: Tensor) -> None:
    torch.testing.assert_close(function(x), model(x), rtol=1e-5, atol=1e-5)


def test_a_parameter_that_no_node_reads_is_no_constant() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6))  # the norm of no rows is written as a constant
    assert_right(model, compiled(model), torch.randn(0, 6))


def test_a_parameter_negated_by_a_mark_alone_is_frozen_negated() -> None:
    weight = torch.randn(3, 6)
    compiled = torch.compile(lambda x, w: x @ w.t(), backend="dort", options={"freeze": True})
    x, marked = torch.randn(2, 6), nn.Parameter(torch._neg_view(weight))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, marked), -x @ weight.t())
        torch.testing.assert_close(compiled(x, nn.Parameter(weight)), x @ weight.t())


def test_parameters_and_buffers_are_constants_once(made: list[frozenset[str]]) -> None:
    model, x = Net(), torch.randn(4, 6)
    function = compiled(model)
    for _ in range(3):
        assert_right(model, function, x)
    assert [len(names) for names in made] == [5]


def step(model: Net, **options: bool) -> None:
    model(torch.ones(4, 6)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1, **options).step()


CHANGES: dict[str, Callable[[Net], object]] = {
    "an optimizer": step,
    "a fused optimizer": lambda model: step(model, fused=True),
    "load_state_dict": lambda model: model.load_state_dict(Net().state_dict()),
    "another tensor": lambda model: setattr(model, "turned", nn.Parameter(torch.randn(6, 3))),
    "another layout": lambda model: setattr(model.turned, "data", torch.randn(6, 3)),
    "other data": lambda model: setattr(model.turned, "data", torch.randn_like(model.turned)),
    "a vector of all": lambda model: nn.utils.vector_to_parameters(
        torch.randn(sum(p.numel() for p in model.parameters())), model.parameters()
    ),
    "a buffer": lambda model: model.shift.add_(1),
    "another size": lambda model: (
        setattr(model, "turned", nn.Parameter(torch.randn(6, 5))),
        setattr(model, "shift", torch.randn(5)),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(change: str) -> None:
    model, x = Net(), torch.randn(4, 6)
    function = compiled(model)
    assert_right(model, function, x)
    CHANGES[change](model)
    assert_right(model, function, x)
    assert_right(model, function, x)


def test_a_compiled_step_of_a_fused_optimizer_is_noticed() -> None:
    model, x = Net(), torch.randn(4, 6)
    function, optimizer = compiled(model), torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    compiled_step = torch.compile(optimizer.step, backend="aot_eager")
    for _ in range(3):
        assert_right(model, function, x)
        model(x).sum().backward()
        compiled_step()


def test_running_statistics_that_eager_torch_moves_are_noticed(made: list[frozenset[str]]) -> None:
    model, x = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)), torch.randn(8, 6)
    function = compiled(model.eval())
    for _ in range(2):
        assert_right(model, function, x)
        assert_right(model, function, x)
        model.train()(x + 3)
        model.eval()
    assert_right(model, function, x)
    assert [len(names) for names in made] == [6, 6, 6]


def test_what_changes_all_the_time_is_an_input(made: list[frozenset[str]]) -> None:
    model, x = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)), torch.randn(8, 6)
    function = compiled(model)
    for _ in range(8):
        with torch.no_grad():
            function(x)
    assert len(made) == frozen.CHANGES + 2
    assert len(made[-1]) == 4
    assert int(model[1].num_batches_tracked) == 8


def test_inference_mode_and_gradients(made: list[frozenset[str]]) -> None:
    with torch.inference_mode():
        model, x = Net(), torch.randn(4, 6)
        function = compiled(model)
        before = function(x)
        model.shift.add_(1)
        torch.testing.assert_close(function(x), before + 1)
    assert made == []
    trained = Net()
    gradient = torch.autograd.grad(compiled(trained)(torch.ones(4, 6)).sum(), trained.turned)[0]
    torch.testing.assert_close(gradient, torch.autograd.grad(trained(torch.ones(4, 6)).sum(), trained.turned)[0])
    assert made == []


def test_session_options_that_cannot_be_added_to_are_refused() -> None:
    with pytest.raises(UsageError, match="give session_options as a mapping"):
        Options.of(freeze=True, session_options=ort.SessionOptions())


@pytest.mark.parametrize(
    "change", [lambda w: w[:1], lambda w: w.t(), lambda w: w.clone()], ids=["shape", "stride", "memory"]
)
def test_another_tensor_is_a_change_even_in_the_same_memory(change: Callable[[Tensor], Tensor]) -> None:
    made: list[Tensor] = []

    def make_run(constants: Mapping[str, Tensor]) -> frozen.RunTensors:
        made.append(constants["w"])
        return lambda _: []

    run, weight = frozen.Frozen(["w"], {"w"}, make_run), torch.ones(3, 3)
    for given in (weight, weight.view(3, 3), change(weight)):
        run([given])
    assert [each.shape for each in made] == [weight.shape, change(weight).shape]


def test_threads_that_call_while_constants_are_made_again_wait_for_them() -> None:
    weight, results = torch.ones(3), list[list[Tensor]]()
    other = threading.Thread(target=lambda: results.append(run([weight])))

    def make_run(constants: Mapping[str, Tensor]) -> frozen.RunTensors:
        value = constants["w"].clone()
        if value[0] == 2:
            other.start()
            other.join(timeout=0.1)
        return lambda _: [value]

    run = frozen.Frozen(["w"], {"w"}, make_run)
    run([weight])
    weight.add_(1)
    results.append(run([weight]))
    other.join()
    assert [value.tolist() for (value,) in results] == [[2] * 3, [2] * 3]


def test_constants_that_could_not_be_made_again_are_made_by_the_next_call() -> None:
    weight, made = torch.ones(3), list[Tensor]()

    def make_run(constants: Mapping[str, Tensor]) -> frozen.RunTensors:
        value = constants["w"].clone()
        made.append(value)
        if len(made) == 2:
            raise KeyboardInterrupt
        return lambda _: [value]

    run = frozen.Frozen(["w"], {"w"}, make_run)
    run([weight])
    weight.add_(1)
    with pytest.raises(KeyboardInterrupt):
        run([weight])
    assert torch.equal(run([weight])[0], weight)
