"""Hooks on the plain model: what they see, and that nothing else sees them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from dort_compare import compare
from dort_compare.trace import run_module
from dort_compare.trace.call import Call
from dort_compare.trace.eager_modules import EagerValue, module_values
from dort_compare.trace.module_calls import ModuleCall, ModuleCalls, Place


class Two(nn.Module):
    """Calls one module twice and returns a view of an output that it writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        y = self.drop(self.lin(self.lin(x)))
        y += 1
        return self.norm(y).t(), {"raw": y}


def seen_in(model: nn.Module, call: Call) -> tuple[Any, dict[Place, Tensor]]:
    seen: dict[Place, Tensor] = {}
    with module_values(model, seen.__setitem__):
        outcome = run_module(model, dict(model.named_parameters()), call)
    return outcome, seen


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_a_run_with_hooks_computes_the_same_bits(autocast: torch.dtype | None) -> None:
    model, call = Two(), Call((torch.randn(3, 4, requires_grad=True),), backward=True, autocast=autocast)
    plain = run_module(model, dict(model.named_parameters()), call)
    watched, _ = seen_in(model, call)
    for before, after in ((plain.outputs, watched.outputs), (plain.gradients, watched.gradients)):
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)


def test_results_and_gradients_are_seen_by_call_and_path() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    outcome, seen = seen_in(model, Call((torch.randn(1, 2),), backward=True))
    first, act, whole = (ModuleCall(name, 0) for name in ("0", "1", ""))
    assert torch.equal(seen[Place("output", whole, "")], outcome.outputs["output"])
    assert torch.equal(seen[Place("gradient", act, "")], seen[Place("gradient", whole, "")])
    expected = seen[Place("gradient", act, "")] * (1 - seen[Place("output", act, "")].square())
    torch.testing.assert_close(seen[Place("gradient", first, "")], expected)
    kinds = [place.kind for place in seen]
    assert kinds.index("gradient") > len(kinds) - 1 - kinds[::-1].index("output")


def test_a_module_called_twice_has_two_calls() -> None:
    _, seen = seen_in(Two(), Call((torch.randn(3, 4),)))
    assert {place.call.number for place in seen if place.call.module == "lin"} == {0, 1}


def test_what_is_written_afterwards_is_not_held() -> None:
    model, held = Two(), {}
    with module_values(model, lambda place, tensor: held.__setitem__(place, EagerValue(tensor))):
        run_module(model, dict(model.named_parameters()), Call((torch.randn(3, 4),)))
    assert held[Place("output", ModuleCall("drop", 0), "")].tensor is None
    assert held[Place("output", ModuleCall("lin", 1), "")].tensor is not None


def test_nothing_stays_behind() -> None:
    model = Two()
    outcome, seen = seen_in(model, Call((torch.randn(3, 4),), backward=True))
    assert not torch_module._global_forward_hooks
    assert not torch_module._global_forward_pre_hooks
    assert all(tensor.grad_fn is None for tensor in seen.values())
    kept = [weakref.ref(tensor) for tensor in seen.values()]
    del outcome
    seen.clear()
    gc.collect()
    assert not any(reference() is not None for reference in kept)


def test_hooks_go_when_the_model_fails() -> None:
    model = nn.Linear(2, 2)
    calls = ModuleCalls(model)
    with pytest.raises(RuntimeError, match="shapes"), calls.watched(lambda call, result: None):
        model(torch.ones(1, 3))
    assert not torch_module._global_forward_hooks


class Catching(nn.Module):
    """Goes on after a module in it has failed."""

    def __init__(self) -> None:
        super().__init__()
        self.bad, self.good = nn.Linear(3, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.bad(x)
        except RuntimeError:
            return self.good(x)


def test_a_call_that_failed_is_left_out() -> None:
    _, seen = seen_in(Catching(), Call((torch.randn(3, 2),)))
    assert [place.call.module for place in seen if place.kind == "output"] == ["good", ""]


class WrittenBehind(nn.Module):
    """Returns a view whose base it writes in place afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        base = self.linear(x) * 2
        view = base[0]
        base.mul_(2)
        return view


def test_a_view_whose_base_was_written_is_watched() -> None:
    """torch's hooks end the process where nobody has asked for the view's node of autograd."""
    assert compare(WrittenBehind(), (torch.randn(3, 4),), backward=True).verdict == "agree"
