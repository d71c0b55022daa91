"""A folder for a bug report runs where there is no torch, and says what the comparison said."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from dort_compare import compare
from dort_compare.cli import main
from dort_compare.dump import graphs_in
from dort_compare.errors import DumpError, UsageError
from dort_compare.lowering import registry
from dort_compare.lowering.targets import find_target
from dort_compare.offline import dumped_run, repro
from dort_compare.repro import case_of

aten = torch.ops.aten
CPU = [("CPUExecutionProvider", {})]
WITHOUT_TORCH = """\
import runpy, sys
for name in ("torch", "dort_compare", "onnx", "safetensors", "ml_dtypes", "onnxscript"):
    sys.modules[name] = None
sys.dont_write_bytecode = True
"""


class Net(nn.Module):
    """Products, a norm of several results, a mask, comparisons, integers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.norm(self.linear(x).tanh())
        masked = y.masked_fill(y > 1, torch.finfo(y.dtype).min)
        return masked.softmax(-1) * 2, masked.argmax(-1)


@pytest.fixture(scope="module", params=[None, torch.bfloat16], ids=["float32", "bfloat16"])
def dump(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forward and backward, with a tanh that is wrong by a thousandth."""
    right = registry._TABLE[aten.tanh.default]
    folder = tmp_path_factory.mktemp("repro") / "dump"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._TABLE, aten.tanh.default, lambda op, x: op.Mul(right(op, x), op.cast(1.05, op.result)))
        torch.manual_seed(0)
        report = compare(
            Net(), (torch.randn(4, 6),), backward=True, autocast=request.param, dump=folder, loss=lambda out: out[0].sum()
        )
    assert [cause.target for cause in report.causes] == ["aten.tanh.default"]
    return folder


def alone(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in the folder with nothing of ours, and no torch, in reach."""
    command = [sys.executable, "-I", "-c", WITHOUT_TORCH + program]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env={"PATH": ""}, check=False)


SCRIPT = "runpy.run_path('repro.py', run_name='__main__')"
PYTEST = "sys.path.insert(0, '.'); import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-c', 'x.ini']))"


def test_what_departs_departs_there_too(dump: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    repro(dump, "tanh", out)
    shown = alone(out, SCRIPT)
    assert shown.returncode == 1, shown.stderr
    assert "DEPARTS tanh" in shown.stdout
    tested = alone(out, PYTEST)
    assert tested.returncode == 1, tested.stdout + tested.stderr
    assert "noise is" in tested.stdout
    assert "aten.tanh.default" in (out / "README.md").read_text()
