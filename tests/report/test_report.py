"""A report as text and as strict JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from samples import INF, NAN, ONE, report, row

from dort_compare.errors import UsageError
from dort_compare.report.tables import number
from dort_compare.report.terminal import verdict_line

ROW_KEYS = {
    "phase", "fx_node", "target", "onnx_value", "dtype", "shape", "module", "source", "inherited", "local",
    "noise_floor", "torch_vs_float64", "onnx_vs_float64", "status", "operands", "code",
}  # fmt: skip
DIVERGENCE_KEYS = {
    "phase", "fx_node", "target", "onnx_value", "onnx_nodes", "module", "source", "reason", "inherited", "local",
    "noise_floor", "torch_vs_float64", "onnx_vs_float64", "further_from_float64", "reaches",
}  # fmt: skip


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize(
    "got", [ONE, NAN, INF, ONE.double(), ONE[None], ONE + 1], ids=["same", "nan", "inf", "dtype", "shape", "value"]
)
def test_the_file_is_strict_json_with_the_promised_keys(tmp_path: Path, got: torch.Tensor) -> None:
    path = tmp_path / "report.json"
    report(row(ONE), row(None), row(got), got=got).to_json(path)
    found = json.loads(path.read_text(), parse_constant=refuse)
    assert found["schema"] == 1
    assert found["verdict"] == ("agree" if got is ONE else "diverge")
    assert all(entry.keys() >= ROW_KEYS for entry in found["rows"])
    assert {"max_abs", "max_rel", "cosine"} <= found["rows"][0]["inherited"].keys()
    assert found["rows"][1]["inherited"] is None
    assert found["rows"][0]["onnx_vs_float64"] == "inf"
    assert found["outputs"][0]["name"] == "y"
    if got is ONE:
        assert found["first_divergence"] is None
    else:
        assert found["first_divergence"].keys() == DIVERGENCE_KEYS
        assert found["first_divergence"]["onnx_nodes"] == ["mul.Mul"]


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "missing" / "report.json", tmp_path / "file" / "report.json"):
        with pytest.raises(UsageError, match="cannot write") as caught:
            report(row(ONE)).to_json(path)
        assert "\n" not in str(caught.value)


def test_agreement_is_one_line() -> None:
    assert verdict_line(report(row(ONE))) == "agree: 1 values and 1 outputs and gradients, none beyond its noise floor"


def test_divergence_is_one_line_with_place_and_reason() -> None:
    line = verdict_line(report(row(ONE), row(ONE + 1)))
    assert line.startswith("diverge: backward mul (aten.mul.Tensor) in module layers.0.mlp at model.py:7: max |torch")
    assert "\n" not in line


def test_the_text_shows_outputs_and_what_is_not_ok() -> None:
    text = str(report(row(ONE, fx_node="fine"), row(NAN, fx_node="bad"), row(None, fx_node="lost"), got=ONE + 1))
    assert text.splitlines()[0].startswith("diverge: backward bad")
    assert "values: 1 ok, 1 diverges, 1 unaligned" in text
    lines = text.splitlines()
    assert any(line.startswith("!") and " y " in line for line in lines)
    assert any(line.startswith("diverges") and "1 NaN in got where expected has numbers" in line for line in lines)
    assert any(line.startswith("unaligned") and "not on both sides" in line for line in lines)
    assert not any("fine" in line for line in lines)
    assert "\x1b" not in text


def test_equal_is_marked_equal_and_only_that(tmp_path: Path) -> None:
    def mark(got: torch.Tensor) -> str:
        line = next(line for line in str(report(row(ONE), got=got)).splitlines() if " y " in line)
        return line[0]

    assert mark(ONE) == "="
    assert mark(ONE + 1e-7) == "~"
    assert mark(ONE + 1) == "!"
    assert mark(ONE.double()) == "!"


def test_long_cells_are_never_cut() -> None:
    source = "/very" * 60 + "/model.py:7"
    assert source in str(report(row(NAN, source=source)))


def test_what_was_computed_in_float32_is_counted() -> None:
    assert "1 of them computed in float32" in str(report(row(ONE, computed_in="float32"), row(ONE)))


@pytest.mark.parametrize(("value", "text"), [(None, ""), (0.0, "0"), (math.inf, "inf"), (0.00123, "1.23e-03")])
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text
