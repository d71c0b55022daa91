"""A report as text and as strict JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from samples import INF, NAN, ONE, report, row

from dort_compare.errors import UsageError
from dort_compare.measure.outcome import outcome_rows
from dort_compare.measure.reach import Reach
from dort_compare.measure.verdict import judge
from dort_compare.report import Report
from dort_compare.report.causes import verdict_line
from dort_compare.report.tables import number

ROW_KEYS = {
    "phase", "fx_node", "target", "onnx_value", "dtype", "shape", "module", "source", "inherited", "local",
    "noise_floor", "torch_vs_float64", "onnx_vs_float64", "status", "operands", "code",
}  # fmt: skip
DIVERGENCE_KEYS = {
    "phase", "fx_node", "target", "onnx_value", "onnx_nodes", "module", "source", "reason", "inherited", "local",
    "noise_floor", "torch_vs_float64", "onnx_vs_float64", "further_from_float64", "reaches", "graph", "run",
    "operands",
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
    assert verdict_line(report(row(ONE))) == "agree: 1 value and 1 output, none beyond its noise floor"


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
    assert any(line.startswith("diverges") and "  1 NaN in ONNX  " in line for line in lines)
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


def test_every_line_fits_80_columns_where_its_words_do() -> None:
    where = {"module": "layers.0.self_attn.q_proj", "source": "/home/somebody/project/model.py:1234"}
    rows = [row(ONE + 1, fx_node=f"scaled_dot_product_{n}", call=f"scaled_dot_product_{n}", **where) for n in range(30)]
    rows += [row(ONE + 1, fx_node=f"late_{n}", status="inherits", **where) for n in range(30)]
    assert max(map(len, str(report(*rows, got=ONE + 1)).splitlines())) <= 80


def test_few_causes_and_few_rows_are_shown_unless_all_are_asked_for() -> None:
    rows = [row(ONE + 1, fx_node=f"bad_{n}") for n in range(9)] + [row(ONE, fx_node="fine")]
    text, everything = str(report(*rows)), report(*rows).text(everything=True)
    assert text.splitlines()[0] == "diverge (and 8 more): backward bad_0 (aten.mul.Tensor)"
    assert "  in module layers.0.mlp at model.py:7" in text.splitlines()
    assert [f"backward bad_{n} (" in text for n in (2, 3)] == [True, False]
    assert "and 6 more; --all, or report.text(everything=True), shows them" in text
    assert "and 1 more that are not ok" in text
    assert all(f"also: backward bad_{n} (" in everything for n in range(1, 9))
    assert any(line.startswith("ok ") and "fine" in line for line in everything.splitlines())
    assert "more" not in everything.splitlines()[-1]


def test_a_cause_tells_what_it_reads_and_what_it_reaches() -> None:
    class Graph:
        def reached(self, _graph: int, _name: str, run: int) -> Reach:
            return Reach(8, ("out",), tuple(f"p{n}" for n in range(9)))

        def operands(self, _graph: int, _name: str) -> tuple[str, ...]:
            return "late", "primals_1"

    rows = (row(ONE + 1, fx_node="late", status="inherits"), row(ONE + 1))
    text = str(Report(*judge(rows, (), Graph()), rows, ()))  # type: ignore[arg-type]
    assert "\n  reads late (inherits), primals_1 (given)\n  made by mul.Mul\n" in text
    assert "  reaches 7 later values; outputs out; gradients p0, p1, p2, p3, p4, p5 and 3\n    more\n" in text


@pytest.mark.parametrize(("outputs", "words"), [((), ""), (("out",), " 1 output and 0 gradients,")])
def test_a_cause_tells_that_others_read_what_it_reaches(outputs: tuple[str, ...], words: str) -> None:
    class Graph:
        def reached(self, _graph: int, _name: str, run: int) -> Reach:
            return Reach(8, outputs, (), beyond=True)

        def operands(self, _graph: int, _name: str) -> tuple[str, ...]:
            return ()

    found = Report(*judge((row(ONE + 1),), (), Graph()), (row(ONE + 1),), ())  # type: ignore[arg-type]
    beyond = "and what is computed of that outside of its graph"
    assert beyond in str(found).replace("\n    ", " ")
    assert verdict_line(found).endswith(f"; it reaches 7 later values,{words} {beyond}")
    assert found.as_json()["causes"][0]["reaches"]["beyond"]


def test_outputs_and_gradients_are_ranked_and_those_of_several_backends_told_apart() -> None:
    names = [f"p{n}" for n in range(8)]
    got = {name: ONE + n * 1e-6 for n, name in enumerate(names)}
    found = [
        outcome_rows(each, "gradient", dict.fromkeys(names, ONE), got, dict, None) for each in ("debug", "inductor")
    ]
    lines = str(Report("agree", (), (row(ONE),), tuple(found[0]))).splitlines()
    table = [line.split()[:2] for line in lines if line.startswith("~")]
    assert table == [["~", f"p{n}"] for n in (7, 6, 5, 4, 3)]
    assert "and 3 more, nearer" in lines
    assert "gradient, inductor" in str(Report("agree", (), (row(ONE),), (*found[0], *found[1])))


def test_what_was_computed_in_float32_is_counted() -> None:
    assert "1 of them computed in float32" in str(report(row(ONE, computed_in="float32"), row(ONE)))


@pytest.mark.parametrize(("value", "text"), [(None, ""), (0.0, "0"), (math.inf, "inf"), (0.00123, "1.23e-03")])
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text
