"""Options are checked where they are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from dort_compare import DebugBackend, debug_backend
from dort_compare.backends import Options
from dort_compare.errors import UsageError
from dort_compare.runtime import newest_opset


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_run": 1}, "unknown option 'max_run', did you mean 'max_runs'?"),
        ({"colour": 1}, "unknown option 'colour'; known are exporter, "),
        ({"exporter": "tensorflow"}, "unknown exporter 'tensorflow'; choose from native, torch"),
        ({"max_runs": -1}, "max_runs is -1"),
        ({"max_runs": True}, "max_runs is True; it counts runs: give 0 or more"),
        ({"verbose": True}, "verbose is True; give 0 to 3"),
        ({"target_opset": 17}, "opset 17 is not supported: choose 18 to "),
        ({"target_opset": 999}, "opset 999 is not supported"),
        ({"target_opset": 26, "exporter": "torch"}, "opset 26 is not supported: choose 18 to 25"),
        ({"providers": ["cpuu"]}, "did you mean 'cpu'?"),
        ({"session_options": {"intra_op_num_thread": 1}}, "did you mean 'intra_op_num_threads'?"),
        ({"dump_prefix": "../model"}, "dump_prefix '../model' is not a plain file name"),
        ({"dump_prefix": ""}, "dump_prefix '' is not a plain file name"),
        ({"dump_prefix": "a\nb"}, r"dump_prefix 'a\nb' is not a plain file name"),
        ({"dump_prefix": "a\\b"}, "is not a plain file name"),
        ({"dump_prefix": 3}, "dump_prefix 3 is not a plain file name"),
        ({"dump": 3}, "dump is 3; give a folder"),
        ({"fallback": "no"}, "fallback is 'no'; give True or False"),
        ({"freeze": "no"}, "freeze is 'no'; give True or False"),
        ({"rewrites": 1}, "rewrites is 1; give True or False"),
        ({"providers": 3}, "providers is 3; give a list"),
        ({"providers": [3]}, "provider 3 is neither a name nor a pair"),
        ({"providers": [("cpu", "fast")]}, "provider ('cpu', 'fast') is neither a name nor a pair"),
        ({"session_options": [1]}, "session_options is [1]; give a dict"),
        ({"session_options": {1: 2}}, "session option 1 is no name"),
        ({"session_options": {"a." + "b" * 2000: 1}}, "session option 'a.bbb"),
        ({"dump": ""}, "dump is ''; give a folder"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Options.of(**given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_default_opset_is_the_newest_that_exporter_and_runtime_share() -> None:
    assert Options().opset == newest_opset()
    assert Options(exporter="torch").opset == min(newest_opset(), 25)


def test_one_provider_may_be_named_without_a_list() -> None:
    assert Options.of(providers="cpu") == Options.of(providers=["cpu"])


def test_a_dump_may_be_named_by_a_string() -> None:
    assert Options.of(dump="folder").dump == Path("folder")


def test_falling_back_is_the_default() -> None:
    assert Options().fallback
    assert not Options.of(fallback=False).fallback


def test_sessions_share_an_arena_unless_one_is_not_wanted() -> None:
    settings = Options.of().session.session_options
    assert settings["session.use_env_allocators"] == "1"
    alone = Options.of(session_options={"enable_cpu_mem_arena": False}).session
    assert alone.session_options["session.use_env_allocators"] == "0"
    assert not alone.make_options().enable_cpu_mem_arena
    for options in ({}, {"session_options": {"enable_cpu_mem_arena": False}}):
        x = torch.randn(3, requires_grad=True)
        (gradient,) = torch.autograd.grad(torch.compile(torch.sin, backend="dort", options=options)(x).sum(), x)
        torch.testing.assert_close(gradient, x.detach().cos())


@pytest.mark.parametrize("backend", ["dort", "onnxrt", "dort_debug", debug_backend, DebugBackend()], ids=range(5))
@pytest.mark.parametrize(
    ("mode", "hint"), [("max-autotune", ""), ("reduce-overhead", ", as cudagraphs for reduce-overhead")]
)
def test_modes_are_inductors(backend: Any, mode: str, hint: str) -> None:
    with pytest.raises(BackendCompilerFailed) as caught:
        torch.compile(torch.nn.ReLU(), backend=backend, mode=mode)(torch.ones(2))
    assert isinstance(caught.value.inner_exception, UsageError)
    message = f"mode is {mode!r}, and modes are inductor's: leave it out, this backend has options only{hint}"
    assert str(caught.value.inner_exception) == message


@pytest.mark.parametrize("backend", ["dort", "dort_debug"])
@pytest.mark.parametrize("options", ["freeze", 3, {1: 2}])
def test_options_that_are_no_dict_of_names_are_refused(backend: str, options: Any) -> None:
    with pytest.raises(BackendCompilerFailed) as caught:
        torch.compile(torch.nn.ReLU(), backend=backend, options=options)(torch.ones(2))
    assert str(caught.value.inner_exception) == f"options is {options!r}; give a dict, such as {{'freeze': True}}"
