"""A dump alone gives the verdict of the comparison that wrote it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from of_function import Of
from other_models import own, run, saved
from small_models import mlp
from torch import Tensor, nn

from dort_compare import compare
from dort_compare.lowering import registry
from dort_compare.models import LlamaConfig, build
from dort_compare.offline import check

LLAMA = LlamaConfig(hidden=32, heads=2, kv_heads=1, intermediate=48, vocabulary=20, layers=1)


class Numbers(nn.Module):
    """Integers, booleans, a 0-d number, an operand that is not contiguous."""

    def forward(self, x: Tensor, n: Tensor, keep: Tensor, factor: float) -> Tensor:
        return torch.where(keep, x.t().softmax(-1), 0.0).sum(0)[n] * factor + n


def decoder(**options: Any) -> Callable[[], Any]:
    return lambda: (*build("decoder", LLAMA, seq=6), {"backward": True, **options})


NUMBERS = (torch.randn(4, 3).t(), torch.tensor([2, 0]), torch.rand(4, 3) > 0.3, 2.5)


CASES: dict[str, Callable[[], Any]] = {
    "backward": lambda: (mlp(), (torch.randn(5, 3),), {"backward": True}),
    "dynamic": lambda: (mlp(), (torch.randn(5, 3),), {"backward": True, "dynamic": True}),
    "in pieces": lambda: (
        nn.Sequential(mlp(), nn.Dropout(), nn.Linear(2, 2)),
        (torch.randn(5, 3),),
        {"backward": True},
    ),
    "numbers": lambda: (Numbers(), NUMBERS, {}),
    "mixed": lambda: (mlp(), (torch.randn(5, 3),), {"backward": True, "autocast": torch.bfloat16}),
    "bfloat16": decoder(autocast=torch.bfloat16),
    "float16": decoder(autocast=torch.float16),
    "torch's exporter": decoder(exporter="torch"),
}
LONG = ("bfloat16", "float16", "torch's exporter")


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] if c in LONG else []) for c in CASES])
def test_a_dump_gives_the_verdict_and_the_rows_of_the_comparison(case: str, tmp_path: Path) -> None:
    model, args, options = CASES[case]()
    report = compare(model, args, dump=tmp_path / "dump", **options)
    again = check(tmp_path / "dump")
    assert again.rows == report.rows
    assert any(row.inherited for row in again.rows)
    assert (again.verdict, again.causes) == (report.verdict, report.causes)
    assert again.graphs == report.graphs


def test_causes_and_what_they_reach_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lowering that is wrong: by name the parameters whose gradients it reaches."""
    silu = torch.ops.aten.silu.default
    right = registry._TABLE[silu]
    monkeypatch.setitem(registry._TABLE, silu, lambda op, x: op.Mul(right(op, x), op.const(1.01, torch.float32)))
    report = compare(mlp(), (torch.randn(5, 3),), backward=True, dump=tmp_path / "dump")
    monkeypatch.undo()
    assert report.verdict == "diverge"
    assert report.first_divergence is not None
    assert report.first_divergence.reach is not None
    assert "2.weight" in report.first_divergence.reach.gradients
    again = check(tmp_path / "dump")
    assert again.causes == report.causes
    assert again.rows == report.rows


def test_another_process_needs_nothing_but_the_dump(dump: Path, tmp_path: Path) -> None:
    program = "from dort_compare.cli import main; main()"
    command = [sys.executable, "-c", program, "check", dump, "--json", tmp_path / "report.json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("agree: ")
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "agree"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json"]


def test_one_graph_by_number_or_name(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for which in ("1", "model_1"):
        status, out, _ = run(capsys, dump, "--graph", which)
        assert status == 0
        assert out.startswith("agree")
    assert {row.phase for row in check(dump, 1).rows} == {"backward"}
    status, _, err = run(capsys, dump, "--graph", "7")
    assert (status, err.count("\n")) == (2, 1)
    assert "has no graph '7'; choose one of model_0, model_1" in err


def test_what_ran_in_eager_torch_beside_a_dump_is_told(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4), nn.GELU())
    compared = compare(model, (torch.randn(3, 4),), backward=True, dump=tmp_path / "dump")
    found = check(tmp_path / "dump")
    assert [each.target for each in found.fallbacks] == ["aten.native_dropout.default"]
    assert found.fallbacks == compared.fallbacks
    assert "agree: " in str(found)
    assert "(1 node ran in eager torch)" in str(found)
    assert check(tmp_path / "dump", 0).fallbacks == ()
    manifest = json.loads((tmp_path / "dump" / "manifest.json").read_text())
    assert [entry.get("is_piece", False) for entry in manifest["graphs"].values()] == [True, False]
    manifest["fallbacks"][0]["reason"] = "\x1b[31m\nagree: all"
    (tmp_path / "dump" / "manifest.json").write_text(json.dumps(manifest))
    assert "\x1b" not in str(check(tmp_path / "dump"))
    assert "\nagree: all" not in str(check(tmp_path / "dump"))


def test_a_finite_mask_hides_no_fault(tmp_path: Path) -> None:
    """Beside -1e9 a wrong score is no rounding."""
    keep = torch.tensor([True, True, False, False])
    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    compare(Of(lambda x, keep: (x + torch.where(keep, 0.0, -1e9)).softmax(-1)), (scores, keep), dump=tmp_path / "dump")
    model = own(tmp_path / "dump")
    node = next(node for node in model.graph.node if node.output[0] == "add")
    node.output[0] = "right"
    off = torch.zeros(3, 4)
    off[2, 0] = 3.0
    model.graph.initializer.append(onnx.numpy_helper.from_array(off.numpy(), "off"))
    wrong = onnx.helper.make_node("Add", ["right", "off"], ["add"], name="wrong")
    wrong.metadata_props.extend(node.metadata_props)
    model.graph.node.insert(list(model.graph.node).index(node) + 1, wrong)
    report = check(tmp_path / "dump", 0, model=saved(model, tmp_path))
    assert [cause.fx_node for cause in report.causes] == ["add"]
    assert check(tmp_path / "dump").verdict == "agree"


@pytest.mark.parametrize("graph", [None, 0])
def test_infinity_that_a_right_op_makes_of_noise_is_no_agreement(graph: int | None, tmp_path: Path) -> None:
    """ONNX Runtime's Sigmoid is exactly 0 from -18 on, which is noise, and its logarithm infinity, which is not."""
    model = Of(lambda x: torch.sigmoid(x).log())
    x = torch.linspace(-40, 40, 33, requires_grad=True)
    whole = compare(model, (x,), backward=True, exporter="torch", dump=tmp_path / "dump")
    found = check(tmp_path / "dump", graph)
    assert (whole.verdict, found.verdict) == ("diverge", "diverge")
    assert found.causes[0].fx_node == "log"
    assert found.causes[0].reason.endswith("noise beside the largest element of these; output or gradient log departs")


def test_infinity_that_is_masked_in_the_end_is_none(tmp_path: Path) -> None:
    model = Of(lambda x: torch.where(x > 0, torch.sigmoid(x).log(), x))
    compare(model, (torch.linspace(-40, 40, 33),), exporter="torch", dump=tmp_path / "dump")
    assert check(tmp_path / "dump").verdict == "agree"


@pytest.mark.parametrize(("op_type", "target"), [("Gather", "t"), ("Sin", "addmm")])
def test_a_node_that_somebody_has_added_to_a_dump_in_bfloat16(tmp_path: Path, op_type: str, target: str) -> None:
    """What it reads is not declared; what it makes needs casts, as that of the node before has them."""
    module, args, kwargs = CASES["mixed"]()
    compare(module, args, **kwargs, dump=tmp_path)
    model = onnx.load(tmp_path / "model_0.onnx")
    i, maker = next((i, node) for i, node in enumerate(model.graph.node) if target in node.output)
    maker.output[0] = f"{target}_before"
    places = onnx.numpy_helper.from_array(torch.tensor([1, 0, 2]).numpy(), "places")
    model.graph.initializer.append(places)
    reads = [maker.output[0], places.name] if op_type == "Gather" else [maker.output[0]]
    node = onnx.helper.make_node(op_type, reads, [target], name="added")
    node.metadata_props.extend(maker.metadata_props)
    model.graph.node.insert(i + 1, node)
    onnx.save(model, tmp_path / "model_0.onnx")
    report = check(tmp_path)
    assert report.first_divergence is not None
    assert report.first_divergence.fx_node == target


def test_onnxs_evaluator_gathers_along_the_last_dimension(tmp_path: Path) -> None:
    model = Of(lambda x: x.gather(-1, torch.tensor([[2, 0], [1, 1]])).sin())
    compare(model, (torch.randn(2, 5),), dump=tmp_path / "dump")
    assert check(tmp_path / "dump", engine="reference").verdict == "agree"
