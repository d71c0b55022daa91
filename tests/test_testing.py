"""``dort_compare.testing``: the failure text is the verdict, and plain pytest shows the line of the test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from dort_compare.errors import UsageError
from dort_compare.lowering import registry
from dort_compare.testing import assert_agrees

THEIR_TEST = """
import torch
from torch import nn
from dort_compare.lowering import registered, registry
from dort_compare.testing import assert_agrees

def test_right():
    assert_agrees(nn.Linear(3, 2), (torch.ones(2, 3),))

def test_wrong():
    assert torch.ops.aten.tanh.default in registered()
    registry._TABLE[torch.ops.aten.tanh.default] = lambda op, x: op.Identity(x)
    assert_agrees(nn.Tanh(), (torch.ones(2, 3),))
"""


def test_returns_the_report_of_a_model_that_agrees() -> None:
    report = assert_agrees(nn.Linear(3, 2), (torch.ones(2, 3),), backward=True, loss=torch.Tensor.mean)
    assert report.verdict == "agree"
    assert {row.kind for row in report.outputs} == {"output", "gradient"}


def test_the_failure_text_is_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._TABLE, torch.ops.aten.tanh.default, lambda op, x: op.Identity(x))
    with pytest.raises(AssertionError) as caught:
        assert_agrees(nn.Tanh(), (torch.ones(2, 3),))
    assert str(caught.value).startswith("diverge: inference tanh (aten.tanh.default)\n")


def test_a_wrong_call_is_no_failed_assertion() -> None:
    with pytest.raises(UsageError, match="args is a Tensor"):
        assert_agrees(nn.Tanh(), torch.ones(2, 3))  # type: ignore[arg-type]


def test_in_plain_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)
    ask = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--show-capture=no", str(tmp_path)]
    done = subprocess.run(ask, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "1 failed, 1 passed" in done.stdout
    assert ">       assert_agrees(nn.Tanh(), (torch.ones(2, 3),))" in done.stdout
    assert "E       AssertionError: diverge: inference tanh (aten.tanh.default)" in done.stdout
    assert "raise AssertionError" not in done.stdout


def test_needs_no_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; import dort_compare.testing"
    subprocess.run([sys.executable, "-c", code], check=True)
