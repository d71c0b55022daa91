"""Whole modules: outputs and gradients, without a trace left in the caller's model."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

from dort_compare import compare
from dort_compare.errors import UsageError
from dort_compare.trace import Outcome, run_module
from dort_compare.trace.call import Call
from dort_compare.trace.model_in_float64 import run_in_float64


def run(model: nn.Module, *args: Any, **call: Any) -> Any:
    return run_module(model, dict(model.named_parameters()), Call(args, **call), model.named_buffers)


class Nested(nn.Module):
    def forward(self, x: Tensor, *, scale: Tensor) -> dict[str, Any]:
        return {"a": x * scale, "b": (x + 1, None, 3), "flags": x > 0}


def test_outputs_are_named_by_their_path() -> None:
    outcome = run(Nested(), torch.ones(2), kwargs={"scale": torch.tensor(2.0)})
    assert list(outcome.outputs) == ["['a']", "['b'][0]", "['b'][2]", "['flags']"]
    assert list(run(nn.Identity(), torch.ones(2)).outputs) == ["output"]


@dataclass
class Pair:
    first: Any
    second: Any


def test_outputs_in_dataclasses_are_named_by_their_fields() -> None:
    outcome = run(nn.Identity(), (Pair(torch.ones(1), {"a": Pair(torch.zeros(2), None)}), Pair))
    assert list(outcome.outputs) == ["[0].first", "[0].second['a'].first"]
    assert set(run(nn.Identity(), Pair(torch.ones(1), "b")).outputs) == {".first"}


def test_a_dataclass_that_holds_itself_is_entered_once() -> None:
    pair = Pair(torch.ones(1), None)
    pair.second = pair
    assert set(run(nn.Identity(), pair).outputs) == {".first"}


def test_gradients_are_named_by_parameter_or_argument() -> None:
    scale = torch.tensor(2.0, requires_grad=True)
    x = torch.ones(2, requires_grad=True)
    outcome = run(Nested(), x, kwargs={"scale": scale}, backward=True)
    assert set(outcome.gradients) == {"argument[0]", "argument['scale']"}
    assert set(run(nn.Linear(2, 2), torch.ones(1, 2), backward=True).gradients) == {"weight", "bias"}


def test_the_given_loss_is_differentiated() -> None:
    model = nn.Linear(2, 1, bias=False)
    x = torch.tensor([[1.0, 2.0]])
    outcome = run(model, x, backward=True, loss=lambda output: output.sum() * 3)
    assert torch.equal(outcome.gradients["weight"], 3 * x)


def test_complex_outputs_are_differentiated() -> None:
    z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    gradient = run(nn.Identity(), z, backward=True).gradients["argument[0]"]
    assert gradient.dtype == torch.complex64
    assert gradient.real.count_nonzero() == gradient.imag.count_nonzero() == 3
    exact = run_in_float64(nn.Identity(), Call((z,), backward=True))
    assert exact.outputs["output"].dtype == torch.complex128
    assert torch.equal(exact.gradients["argument[0]"], gradient.to(torch.complex128))


def test_what_is_sparse_is_made_dense() -> None:
    table = nn.Embedding(3, 2, sparse=True)
    gradient = run(table, torch.tensor([1, 1]), backward=True, loss=lambda output: output.sum()).gradients["weight"]
    assert gradient.tolist() == [[0, 0], [2, 2], [0, 0]]
    for sparse in (torch.eye(2).to_sparse(), torch.eye(2).to_sparse_csr()):
        assert torch.equal(run(nn.Identity(), sparse).outputs["output"], torch.eye(2))


def test_nothing_of_the_callers_is_touched() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout())
    x = torch.randn(4, 3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    run(model, x, backward=True)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.training


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, cache: Tensor) -> tuple[Any, Any]:
        self.steps += 1
        cache.add_(1)
        return cache, self.steps


def test_arguments_and_buffers_written_in_place_are_restored_and_their_values_returned() -> None:
    model, cache = Cache(), torch.zeros(2)
    for _ in range(2):
        outcome = run(model, cache)
        assert [tensor.tolist() for tensor in outcome.outputs.values()] == [[1.0, 1.0], [1.0]]
        assert cache.tolist() == [0.0, 0.0]
        assert model.steps.tolist() == [0.0]


class Momentum(nn.Module):
    """Changes a parameter in place, sets a buffer anew, writes into another one what it holds, and adds a third."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = nn.Parameter(torch.ones(1), requires_grad=False)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("same", torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        self.slow.mul_(0.5)
        self.mean = self.mean + x
        self.same.mul_(1)
        self.register_buffer("seen", x.clone())
        return x * self.slow


def test_updates_are_what_a_call_leaves_in_parameters_buffers_and_arguments_that_it_changes() -> None:
    model, x = Momentum(), torch.ones(2)
    for outcome in (run(model, x), run(model, x), run_in_float64(model, Call((x,)))):
        assert {name: tensor.tolist() for name, tensor in outcome.updates.items()} == {"slow": [0.5], "mean": [1, 1]}
    assert outcome.updates["mean"].dtype == torch.float64
    assert set(run(Cache(), torch.zeros(2)).updates) == {"argument[0]", "steps"}
    assert outcome.left(["same", "mean", "none"]).keys() == {"same", "mean"}


class Slow(nn.Module):
    """Sets the data of a parameter, as the momentum encoder of MoCo does."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = nn.Parameter(torch.ones(2), requires_grad=False)
        self.lin = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.slow.data = self.slow.data * 0.5
        return self.lin(x) * self.slow


def test_a_parameter_whose_data_is_set_has_its_memory_back() -> None:
    model = Slow()
    memory = model.slow.data_ptr()
    report = compare(model, (torch.ones(1, 2),), backward=True)
    assert str(report).startswith("diverge: nothing was compared: all that was compiled ran in eager torch")
    assert all(row.ok for row in report.outputs), str(report)
    assert [row.name for row in report.outputs if row.kind == "update"] == ["slow"]
    assert (model.slow.tolist(), model.slow.data_ptr()) == ([1.0, 1.0], memory)


class Remembered(nn.Module):
    """Writes what requires gradients into an argument and a buffer, as caches of keys do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(1, 2))
        self.lin = nn.Linear(2, 2)

    def forward(self, cache: Tensor, x: Tensor) -> Tensor:
        cache[:1] = self.last.copy_(self.lin(x))
        return cache.sin() * self.last


def test_what_is_written_in_place_keeps_no_history_of_autograd() -> None:
    model, cache, x = Remembered(), torch.zeros(3, 2), torch.ones(1, 2)
    first, second = (run(model, cache, x, backward=True) for _ in range(2))
    assert first.gradients.keys() == {"lin.weight", "lin.bias"}
    assert all(torch.equal(first.gradients[name], second.gradients[name]) for name in first.gradients)
    assert cache.is_leaf
    assert not cache.requires_grad
    assert not cache.any()


def test_a_call_that_raises_leaves_nothing_behind() -> None:
    class Raising(Remembered):
        def forward(self, cache: Tensor, x: Tensor) -> Tensor:
            super().forward(cache, x)
            raise ValueError("afterwards")

    model, cache = Raising(), torch.zeros(3, 2)
    with pytest.raises(ValueError, match="afterwards"):
        run(model, cache, torch.ones(1, 2), backward=True)
    assert model.last.is_leaf
    assert not model.last.requires_grad
    assert not model.last.any()
    assert not cache.any()


def test_a_view_that_is_written_with_gradients_is_refused() -> None:
    with pytest.raises(UsageError, match="an argument or buffer that is a view of another tensor; give a clone of it"):
        run(Remembered(), torch.zeros(4, 2)[1:], torch.ones(1, 2), backward=True)


class Stateful(nn.Module):
    """Keeps something of each call: a cache, a hidden state, keys, a count, a buffer that it sets."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.lin = nn.Linear(2, 2)
        self.states, self.calls, self.seen = {"hidden": [torch.zeros(1, 2)]}, 0, torch.zeros(2)
        self.keys: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "table"):
            self.table = torch.ones(2, 2, dtype=x.dtype) * self.lin.bias
        self.calls += 1
        self.mean = 0.9 * self.mean + self.calls
        self.seen += 1
        self.keys.append(self.lin(x).detach())
        self.states["hidden"][-1] = torch.tanh(self.lin(x) + self.states["hidden"][-1]).detach()
        return self.lin(x) @ self.table + torch.cat(self.keys) + self.mean + self.states["hidden"][-1] + self.seen


def test_each_run_is_the_first_for_a_model_that_keeps_something_of_it() -> None:
    model, x = Stateful(), torch.ones(1, 2)
    exact = run_in_float64(model, Call((x,), backward=True))
    assert exact.outputs["output"].dtype == torch.float64
    first, second = (run(model, x, backward=True) for _ in range(2))
    assert torch.equal(first.outputs["output"], second.outputs["output"])
    torch.testing.assert_close(exact.outputs["output"].float(), first.outputs["output"])
    assert first.outputs["output"].dtype == torch.float32
    assert (model.calls, model.keys, hasattr(model, "table")) == (0, [], False)
    assert not any(tensor.any() for tensor in (model.mean, model.seen, model.states["hidden"][-1]))


class Recording(nn.Module):
    """Registers a hook in its first call, as models of transformers do that return hidden states."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.is_hooked = nn.Linear(2, 2), False

    def forward(self, x: Tensor) -> list[Tensor]:
        recorded: list[Tensor] = []
        self.recorded = recorded
        if not self.is_hooked:
            self.lin.register_forward_hook(lambda _, __, result: self.recorded.append(result))
            self.is_hooked = True
        self.lin(x)
        return recorded


def test_hooks_that_a_call_registers_are_gone_after_it() -> None:
    model, x = Recording(), torch.ones(1, 2)
    model.lin.register_forward_hook(own := lambda *_: None)
    assert len(run_in_float64(model, Call((x,))).outputs) == 1
    assert [len(run(model, x).outputs) for _ in range(2)] == [1, 1]
    assert [*model.lin._forward_hooks.values()] == [own]


def test_random_models_draw_the_same_each_time() -> None:
    model = nn.Dropout()
    x = torch.ones(100)
    assert torch.equal(run(model, x).outputs["output"], run(model, x).outputs["output"])


def test_numpy_and_python_draw_the_same_each_time_too() -> None:
    def draws(x: Tensor) -> Tensor:
        return x * np.random.rand() + random.random()

    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    first = run_module(draws, {}, Call((torch.ones(1),))).outputs["output"]
    assert (random.random(), np.random.rand()) == expected
    assert torch.equal(run_module(draws, {}, Call((torch.ones(1),))).outputs["output"], first)


def test_autocast_reaches_the_model() -> None:
    assert run(nn.Linear(2, 2), torch.ones(1, 2), autocast=torch.bfloat16).outputs["output"].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("model", "call", "message"),
    [
        (nn.Identity(), {"backward": True}, "no output depends on a parameter or argument that requires grad"),
        (nn.Linear(1, 1), {"backward": True, "loss": lambda output: output.detach().sum()}, "no output depends on"),
        (
            nn.Linear(1, 1),
            {"backward": True, "loss": lambda output: output},
            "has to be a real tensor of one element",
        ),
        (
            nn.Linear(1, 1),
            {"backward": True, "loss": lambda output: 1.0},
            "has to be a real tensor of one element",
        ),
        (
            nn.Linear(1, 1),
            {"backward": True, "loss": lambda output: output.sum().to(torch.complex64)},
            "loss has to be a real",
        ),
        (nn.ModuleList(), {}, "returned a NoneType, in which no tensor is found; have it return tensors"),
    ],
)
def test_what_cannot_be_compared_is_refused(model: nn.Module, call: dict[str, Any], message: str) -> None:
    function: Any = (lambda x: None) if isinstance(model, nn.ModuleList) else model
    with pytest.raises(UsageError, match=message):
        run_module(function, dict(model.named_parameters()), replace(Call((torch.ones(2, 1),)), **call))


def subclasses() -> list[Tensor]:
    rows = [torch.ones(1, 2), torch.ones(3, 2)]
    return [TwoTensor(torch.ones(2), torch.ones(2)), torch.nested.nested_tensor(rows, layout=torch.jagged)]


@pytest.mark.parametrize("tensor", subclasses(), ids=["wrapper", "nested"])
def test_tensors_that_are_made_of_others_are_refused(tensor: Tensor) -> None:
    with pytest.raises(
        UsageError, match=r"^a parameter, buffer or argument is a .*; have the model take .* plain tensors$"
    ):
        run(nn.Identity(), tensor)
    model = nn.Identity()
    model.register_forward_hook(lambda *_: tensor)
    with pytest.raises(
        UsageError, match=r"^an output is a (TwoTensor|nested tensor).*; have the model .* plain tensors$"
    ):
        run(model, torch.ones(2))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 2, device="meta"), "on the device meta, which holds no values; "),
        (nn.LazyLinear(2), "not initialized; call the model once before"),
    ],
)
def test_what_holds_no_values_is_refused(model: nn.Module, message: str) -> None:
    with pytest.raises(UsageError, match=f"^a parameter, buffer or argument is {message}"):
        run(model, torch.ones(1, 2))
    assert run_in_float64(model, Call((torch.ones(1, 2),))) == Outcome({})


class Like(nn.Module):
    """Knows of a tensor its shape alone."""

    def __init__(self) -> None:
        super().__init__()
        self.like = torch.empty(3, 2, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        return x * self.like.shape[0]


def test_an_attribute_that_holds_no_values_is_left_alone() -> None:
    assert torch.equal(run(Like(), torch.ones(2)).outputs["output"], torch.full((2,), 3.0))


def test_the_log_says_why_there_is_no_float64(said_by: Callable[[str], list[str]]) -> None:
    assert run_in_float64(nn.Linear(2, 2), Call((torch.ones(1, 3),))) == Outcome({})
    (said,) = said_by("dort_compare.trace")
    assert said.startswith("nothing of the whole model is held against float64: RuntimeError: ")
    assert "mat1 and mat2 shapes" in said


def test_what_was_made_in_inference_mode_is_not_differentiated() -> None:
    with torch.inference_mode():
        x = torch.ones(1, 2)
        with pytest.raises(UsageError, match=r"^backward=True within torch\.inference_mode\(\), .*; call it outside$"):
            run(nn.Linear(2, 2), torch.ones(1, 2), backward=True)
    assert run(nn.Linear(2, 2), x).outputs["output"].shape == (1, 2)
    with pytest.raises(UsageError, match=r"^what was made in torch\.inference_mode\(\) .*; give a clone of it"):
        run(nn.Linear(2, 2), x, backward=True)


def test_numbers_that_a_model_returns_are_outputs() -> None:
    numbers = {
        "mean": 1.5, "rows": 2, "whole": True, "lowest": -(2**63), "beyond": 2**80, "phase": 1 + 2j,
        "numpy's": np.float32(0.5), "its integer": np.int64(7),
    }  # fmt: skip

    class Counting(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Any]:
            return {"y": x, "name": "x", **numbers}

    outputs = run(Counting(), torch.tensor([1.0, 2.0])).outputs
    assert {name: each.item() for name, each in outputs.items() if not each.dim()} == {
        f"[{name!r}]": number for name, number in numbers.items()
    }
    dtypes = {name: each.dtype for name, each in outputs.items()}
    assert dtypes["['mean']"] == dtypes["['beyond']"] == torch.float64
    assert (dtypes["['lowest']"], dtypes["['whole']"]) == (torch.int64, torch.bool)


def test_nan_that_is_only_read_is_no_update() -> None:
    x = torch.tensor([1.0, torch.nan])
    assert not run(nn.ReLU(), x).updates
    assert [*run(nn.ReLU(inplace=True), torch.tensor([-1.0, torch.nan])).updates] == ["argument[0]"]


def test_nan_in_what_a_model_only_reads_stays_as_it_was() -> None:
    x = torch.randn(2, 3, 4)
    x[0, 0, 0] = torch.nan
    model = nn.Sequential(nn.Flatten(1), nn.Linear(12, 2), nn.ReLU())
    version = x._version
    report = compare(model, (x,), backward=True)
    assert x._version == version
    assert report.verdict == "agree", str(report)
    assert not any("in place" in (row.reason or "") for row in report.modules)
    assert run(nn.Flatten(1), torch.full((1, 2, 2), torch.nan).expand(3, 2, 2)).outputs["output"].isnan().all()
