"""A report as CSV, JUnit XML, SARIF, a data frame and HTML: read back by what reads them."""

from __future__ import annotations

import csv
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import junitparser
import pytest
import torch
from sarif_pydantic import Sarif

from dort_compare.errors import UsageError
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.outcome import outcome_rows
from dort_compare.measure.rows import Row
from dort_compare.measure.verdict import judge
from dort_compare.report import Report
from dort_compare.report.records import COLUMNS

ONE = torch.ones(2)
NASTY = "=cmd|' /C calc'!A0 <script>alert(1)</script> \x1b[31m\x00 \ud800 \"&amp;"


def row(got: torch.Tensor | None = ONE, **changes: Any) -> Row:
    found = None if got is None else distance(ONE, got)
    status = "unaligned" if found is None else "ok" if found.equal else "diverges"
    given = {"phase": "forward", "graph": 0, "fx_node": "mul", "target": "aten.mul.Tensor", "module": "layers.0"}
    given |= {"source": "model.py:7", "dtype": "float32", "shape": (2,), "status": status, "inherited": found}
    nodes = tuple(f"{changes.get('fx_node', 'mul')}.{end}" for end in "ab")
    given |= {"noise_floor": 1e-5, "onnx_vs_float64": math.inf, "onnx_nodes": nodes, **changes}
    return Row(call=given["fx_node"], **given)


def report(*rows: Row, got: torch.Tensor = ONE) -> Report:
    outputs = tuple(outcome_rows("debug", "output", {"y": ONE}, {"y": got}, dict, None))
    outputs += tuple(outcome_rows("debug", "gradient", {"-w": ONE}, {"-w": got}, dict, None))
    return Report(*judge(rows, outputs), rows, outputs)


WRONG = report(row(), row(None, fx_node="lost"), row(ONE + 1, fx_node="bad", module="layers.1", run=3), got=ONE + 1)
RIGHT = report(row(), row(fx_node="add", module=""), row(None, fx_node="gone", module="frozen", reason="fused away"))
STRANGE = report(row(ONE + 1, fx_node=NASTY, module=NASTY, target=NASTY, source=f"{NASTY}:3"))
CASES = {"right": RIGHT, "wrong": WRONG, "strange": STRANGE}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", ["csv", "junit", "sarif"])
def test_a_file_that_cannot_be_written_is_one_line(case: str, form: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        getattr(CASES[case], f"to_{form}")(tmp_path / "missing" / "file")
    assert not list(tmp_path.iterdir())


def read_csv(found: Report, folder: Path) -> list[dict[str, str]]:
    found.to_csv(folder / "report.csv")
    with (folder / "report.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv_holds_values_outputs_and_gradients(tmp_path: Path) -> None:
    rows = read_csv(WRONG, tmp_path)
    assert tuple(rows[0]) == COLUMNS
    assert [each["run"] for each in rows] == ["1", "1", "3", "", ""]
    assert [(each["kind"], each["name"], each["status"]) for each in rows] == [
        ("value", "mul", "ok"),
        ("value", "lost", "unaligned"),
        ("value", "bad", "diverges"),
        ("output", "y", "diverges"),
        ("gradient", "'-w", "diverges"),
    ]
    worst = rows[2]["inherited_max_abs"], rows[2]["inherited_worst"], rows[2]["onnx_nodes"]
    assert worst == ("1.0", "0", "bad.a bad.b")
    assert (rows[0]["onnx_vs_float64"], rows[1]["inherited_max_abs"], rows[0]["shape"]) == ("inf", "", "2")


def test_no_cell_is_a_formula_or_a_control_character(tmp_path: Path) -> None:
    for each in read_csv(STRANGE, tmp_path):
        for cell in each.values():
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
            assert cell.isprintable()
    assert any(each["name"].startswith("'=cmd|") for each in read_csv(STRANGE, tmp_path))


def read_junit(found: Report, folder: Path) -> dict[tuple[str, str], junitparser.TestCase]:
    found.to_junit(folder / "report.xml")
    suites = junitparser.JUnitXml.fromfile(str(folder / "report.xml"))
    counted = (suites.tests, suites.failures, suites.errors, suites.skipped)
    suites.update_statistics()
    assert counted == (suites.tests, suites.failures, suites.errors, suites.skipped)
    return {(suite.name, case.name): case for suite in suites for case in suite}


def test_junit_has_a_case_for_the_verdict_modules_outputs_and_gradients(tmp_path: Path) -> None:
    cases = read_junit(WRONG, tmp_path)
    assert list(cases) == [
        ("verdict", "agrees with eager"),
        ("forward graph 0", "layers.0"),
        ("forward graph 0", "layers.1"),
        ("outputs and gradients of debug", "output y"),
        ("outputs and gradients of debug", "gradient -w"),
    ]
    assert [case.is_failure for case in cases.values()] == [True, False, True, True, True]
    verdict, module = cases["verdict", "agrees with eager"].result[0], cases["forward graph 0", "layers.1"]
    assert verdict.message.startswith("diverge: forward bad (aten.mul.Tensor) in module layers.1 at model.py:7: ")
    assert verdict.text == WRONG.text()
    assert module.result[0].message == "bad (aten.mul.Tensor) at model.py:7: 1.00e+00, where 1.00e-05 is noise"
    attributes = ET.parse(tmp_path / "report.xml").find(".//testcase[@name='layers.1']").attrib
    assert (attributes["file"], attributes["line"]) == ("model.py", "7")


def test_junit_skips_where_nothing_was_compared_and_fails_nothing_where_all_agrees(tmp_path: Path) -> None:
    cases = read_junit(RIGHT, tmp_path)
    assert not any(case.is_failure for case in cases.values())
    skipped = {name: case.result[0].message for (_, name), case in cases.items() if case.is_skipped}
    assert skipped == {"frozen": "nothing was compared: fused away"}
    assert ("forward graph 0", "(model)") in cases


def test_junit_of_a_verdict_without_rows(tmp_path: Path) -> None:
    cases = read_junit(Report(*judge((), ()), (), ()), tmp_path)
    assert [case.is_failure for case in cases.values()] == [True]


def test_junit_skips_a_graph_break(tmp_path: Path) -> None:
    cases = read_junit(replace(RIGHT, graph_breaks=("print(x) at model.py:7",) * 2), tmp_path)
    broken = cases["graph breaks", "print(x) at model.py:7"]
    assert broken.is_skipped
    assert len(cases) == len(read_junit(RIGHT, tmp_path)) + 1


def test_junit_is_xml_whatever_the_names(tmp_path: Path) -> None:
    cases = read_junit(STRANGE, tmp_path)
    assert any("<script>alert(1)</script>" in name for _, name in cases)


def read_sarif(found: Report, folder: Path) -> dict[str, Any]:
    found.to_sarif(folder / "report.sarif")
    log = json.loads((folder / "report.sarif").read_text(encoding="utf-8"))
    model = Sarif.model_validate(log)
    kept = json.loads(model.model_dump_json(by_alias=True, exclude_none=True, exclude_defaults=False))
    assert log["runs"][0].keys() <= kept["runs"][0].keys()
    for ours, theirs in zip(log["runs"][0]["results"], kept["runs"][0].get("results", []), strict=True):
        assert ours.items() <= theirs.items() or all(ours[key] == theirs[key] for key in ours)
    return log["runs"][0]


def test_sarif_has_each_cause_at_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    places = ("model.py:7", f"{tmp_path}/my models/net.py:12", "/elsewhere/a b.py:3", "", "<eval>:x", "m.py:0")
    found = report(*(row(ONE + 1, fx_node=f"bad_{n}", source=source) for n, source in enumerate(places)))
    run = read_sarif(found, tmp_path)
    placed = [each["locations"][0]["physicalLocation"] for each in run["results"]]
    assert [(each["artifactLocation"]["uri"], each["region"]["startLine"]) for each in placed] == [
        ("model.py", 7),
        ("my%20models/net.py", 12),
        ("file:///elsewhere/a%20b.py", 3),
    ]
    assert {each["level"] for each in run["results"]} == {"error"}
    assert run["results"][0]["message"]["text"].startswith("forward bad_0 (aten.mul.Tensor) in module layers.0 at ")
    assert {each["ruleId"] for each in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    notifications = run["invocations"][0]["toolExecutionNotifications"]
    assert [each["message"]["text"].split(" (")[0] for each in notifications] == [f"forward bad_{n}" for n in (3, 4, 5)]


def test_sarif_of_what_agrees_has_no_result(tmp_path: Path) -> None:
    assert read_sarif(RIGHT, tmp_path)["results"] == []
    assert len(read_sarif(STRANGE, tmp_path)["results"]) == 1


def test_sarif_tells_the_same_departure_in_the_next_run(tmp_path: Path) -> None:
    def fingerprint(**changes: Any) -> dict[str, str]:
        return read_sarif(report(row(ONE + 1, **changes)), tmp_path)["results"][0]["partialFingerprints"]

    assert fingerprint() == fingerprint(fx_node="mul_7", source="model.py:9") != fingerprint(module="layers.2")


def test_the_data_frame_has_a_row_for_each_and_numbers_as_numbers() -> None:
    frame = WRONG.to_dataframe()
    assert tuple(frame.columns) == COLUMNS
    assert frame[frame.kind == "value"].set_index("name").status.to_dict() == {r.fx_node: r.status for r in WRONG.rows}
    assert frame[frame.kind == "gradient"].inherited_max_abs.tolist() == [1.0]
    assert frame.inherited_max_abs.dtype == "float64"
    assert frame.onnx_vs_float64.max() == math.inf
    assert tuple(Report("agree", (), (), ()).to_dataframe().columns) == COLUMNS


def test_without_pandas_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError) as caught:
        WRONG.to_dataframe()
    assert str(caught.value) == "to_dataframe needs pandas: pip install 'dort-compare[pandas]'"


@pytest.mark.parametrize("case", CASES)
def test_jupyter_shows_the_text_and_nothing_runs(case: str) -> None:
    shown = CASES[case]._repr_html_()
    tree = ET.fromstring(shown)  # HTML that is XML too: every "<" of a name is escaped
    assert [each.tag for each in tree.iter()] == ["pre", "b"]
    assert "".join(tree.itertext()) == str(CASES[case])
