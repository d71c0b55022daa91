"""Who hears how much of a compilation, and what it costs where nobody listens."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dort_compare
from dort_compare import DebugBackend, log
from dort_compare.errors import MissingLoweringError, UsageError

ROOT = Path(dort_compare.__file__).parent.parent
STAGES = (
    r"dynamo graph 0/0: 1 operators, 3 inputs",
    r"inference graph 0/0: 2 operators, 3 inputs",
    r"inference graph 0/0: \d+ ONNX nodes; lower [\d.]+ ms, kernels [\d.]+ ms, session [\d.]+ ms, [\d.]+ ms in all",
    r"dynamo graph 0/0: AOTAutograd [\d.]+ ms",
)


def compile_linear(backend: Any) -> None:
    torch.compile(nn.Linear(4, 2).requires_grad_(False), backend=backend)(torch.ones(3, 4))


def of_ours(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "dort_compare.log"]


def test_verbose_1_tells_what_is_compiled_and_how_long_it_takes(capfd: pytest.CaptureFixture[str]) -> None:
    compile_linear(DebugBackend(verbose=1))
    lines = capfd.readouterr().err.splitlines()
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(STAGES, lines, strict=True)), lines


def test_verbose_2_tells_the_modules_too_and_verbose_3_their_operators(capfd: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 2)).requires_grad_(False)
    text = {}
    for verbose in (2, 3):
        torch._dynamo.reset()
        torch.compile(lambda x, model=model: model(x), backend=DebugBackend(verbose=verbose))(torch.ones(3, 4))
        text[verbose] = capfd.readouterr().err.splitlines()
    modules = [line for line in text[3] if "aten." not in line]
    assert [re.sub(r"[\d.]+ ms", "", line) for line in modules] == [re.sub(r"[\d.]+ ms", "", line) for line in text[2]]
    assert any("enter model.0: Linear(" in line for line in text[2])
    assert sum("aten." in line for line in text[3]) == 2


def test_the_fast_backend_tells_as_much(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = nn.Linear(4, 2).requires_grad_(False)
    torch.compile(model, backend="dort", options={"verbose": 1, "dump": tmp_path})(torch.ones(3, 4))
    assert re.search(r"lower .*, kernels .*, rewrites .*, session .*, dump .* in all", capfd.readouterr().err)


def test_nothing_is_told_and_no_text_made_by_default(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError

    for place in ("compilation.graph_lines", "compilation.inserted_casts", "compilation.size_of", "traced.given_to"):
        monkeypatch.setattr(f"dort_compare.log.{place}", refuse)
    compile_linear(DebugBackend())
    assert capfd.readouterr().err == ""


def test_the_log_of_one_backend_is_not_that_of_another(capfd: pytest.CaptureFixture[str]) -> None:
    compile_linear(DebugBackend(verbose=3))
    capfd.readouterr()
    torch._dynamo.reset()
    compile_linear(DebugBackend())
    assert capfd.readouterr().err == ""
    assert logging.getLogger("dort_compare.log").handlers == []
    assert logging.getLogger("dort_compare.log").level == logging.NOTSET


@pytest.mark.parametrize("verbose", [-1, 4, "2", None])
def test_other_verbosities_are_refused(verbose: Any) -> None:
    with pytest.raises(UsageError, match=re.escape(f"verbose is {verbose!r}; give 0 to 3")):
        DebugBackend(verbose=verbose)


def test_a_failure_ends_the_log_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dort_compare.log")
    with pytest.raises(Exception, match="no lowering") as caught:
        torch.compile(torch.bernoulli, backend=DebugBackend(fallback=False))(torch.ones(3))
    assert isinstance(caught.value.inner_exception, MissingLoweringError)
    *_, tree, end = [record.getMessage() for record in of_ours(caplog)]
    assert "aten.bernoulli.default(arg0_1: f32[3]) -> bernoulli: f32[3]" in tree
    assert end.startswith("inference graph 0/0: MissingLoweringError: no lowering for aten.bernoulli.default")


def test_what_falls_back_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dort_compare.log")
    torch.compile(lambda x: torch.bernoulli(x.abs()) + 1, backend=DebugBackend())(torch.ones(3))
    assert "2 ONNX nodes in 2 pieces, 1 operators in eager torch; lower " in caplog.text
    assert ", cut " in caplog.text


def test_a_fault_of_the_log_does_not_reach_the_model(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dort_compare.log.compilation.graph_lines", lambda *_, **__: 1 / 0)
    compile_linear(DebugBackend(verbose=2))
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_threads_do_not_mix_their_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dort_compare.log")
    graphs = [torch.fx.symbolic_trace(nn.Sequential(*[nn.ReLU()] * n)) for n in (1, 2, 3, 4)]

    def tell(graph_module: torch.fx.GraphModule) -> None:
        for _ in range(50):
            with log.compiling(0, graph_module, "forward", str(len(graph_module.graph.nodes))):
                pass

    threads = [threading.Thread(target=tell, args=(graph_module,)) for graph_module in graphs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trees = [record.getMessage() for record in of_ours(caplog) if record.levelno == logging.DEBUG]
    assert sorted({tree.count("source line unknown") for tree in trees}) == [1, 2, 3, 4]
    assert len(trees) == 200
    assert all(f"graph {tree.count('source line unknown') + 2}\n" in tree for tree in trees)


@pytest.mark.slow
def test_the_environment_of_torch_switches_it_on() -> None:
    script = (
        "import torch; from dort_compare import log\n"
        "with log.compiling(0, torch.fx.symbolic_trace(torch.nn.ReLU()), 'forward', '0/0'): pass"
    )
    environment = {**os.environ, "TORCH_LOGS": "+dort_compare", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert "] forward graph 0/0: 1 operators, 1 inputs" in done.stderr
    assert re.search(r"\] +torch.nn.functional.relu\(input_1, inplace=False\) -> relu  # ", done.stderr)
