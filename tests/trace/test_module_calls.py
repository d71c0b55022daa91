"""The calls of modules are watched by hooks that dynamo knows from run to run."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torchs

from dort_compare.trace.module_calls import ModuleCall, ModuleCalls


def watched_calls(model: nn.Module, times: int) -> list[list[ModuleCall]]:
    """The calls that ended in each of several runs."""
    runs = []
    for _ in range(times):
        ended: list[ModuleCall] = []
        with ModuleCalls(model).watched(lambda call, _, ended=ended: ended.append(call)):
            model(torch.ones(2, 4))
        runs.append(ended)
    return runs


def test_a_compiled_model_with_hooks_of_its_own_is_compiled_once_for_all_runs() -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    for module in model:
        module.register_forward_hook(lambda *_: None)
    before = torch._dynamo.utils.counters["frames"]["ok"]
    with torch._dynamo.config.patch(error_on_recompile=True):
        watched_calls(torch.compile(model, backend="eager"), 4)
    assert torch._dynamo.utils.counters["frames"]["ok"] - before == 1


def test_every_run_counts_its_own_calls_and_leaves_no_hook() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    calls = [ModuleCall("0", 0), ModuleCall("1", 0), ModuleCall("", 0)]
    assert watched_calls(model, 3) == [calls] * 3
    assert not torchs._global_forward_hooks
    assert not torchs._global_forward_pre_hooks


def test_runs_within_one_another_are_told_apart() -> None:
    model, other = nn.Tanh(), nn.Tanh()
    of_model: list[ModuleCall] = []
    of_other: list[ModuleCall] = []
    with ModuleCalls(model).watched(lambda call, _: of_model.append(call)):
        with ModuleCalls(other).watched(lambda call, _: of_other.append(call)):
            other(torch.ones(1))
        model(torch.ones(1))
    assert of_model == of_other == [ModuleCall("", 0)]


def test_an_exception_leaves_no_hook() -> None:
    with pytest.raises(TypeError), ModuleCalls(nn.Tanh()).watched(lambda *_: None):
        nn.Tanh()()
    assert not torchs._global_forward_hooks
