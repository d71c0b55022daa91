"""A report as one HTML file: what is in the file, without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from samples import INF, NAN, ONE, report, row

from dort_compare.errors import UsageError
from dort_compare.report import Report, html
from dort_compare.report.html.columns import columns

VENDOR = Path(html.__file__).parent / "vendor"
HOSTILE = "</script><script>alert(1)</script><!--"


class Scripts(HTMLParser):
    """The scripts of a page, with their attributes, and what else it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[dict[str, str | None], str]] = []
        self.links: list[str | None] = []
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.links += [given[name] for name in ("src", "href") if name in given]
        if tag == "script":
            self.found.append((given, ""))
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]

    def handle_data(self, data):
        if self.found and not self.found[-1][1]:
            self.found[-1] = (self.found[-1][0], data)


def data_of(text: str):
    return next(json.loads(body) for given, body in Scripts(text).found if given.get("id") == "report")


def unpacked(column):
    return [column["of"][at] for at in column["at"]] if isinstance(column, dict) else column


def test_the_file_loads_nothing_and_runs_its_own_scripts_alone(tmp_path: Path) -> None:
    report(row(ONE), row(ONE + 1)).to_html(tmp_path / "report.html")
    page = Scripts((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.links == ["#values"]
    assert "default-src 'none'" in page.policy
    running = [body for given, body in page.found if given.get("type") != "application/json"]
    hashes = {base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in running}
    assert hashes == set(re.findall(r"'sha256-([^']+)'", page.policy))
    assert len(running) == 3
    assert "unsafe-eval" not in page.policy
    assert "innerHTML" not in running[-1]


def test_names_cannot_leave_the_data() -> None:
    found = report(row(ONE + 1, fx_node=HOSTILE, module=HOSTILE, source=HOSTILE, reason=HOSTILE))
    text = html.page(found.as_json())
    assert HOSTILE not in text
    assert unpacked(data_of(text)["rows"]["columns"]["fx_node"]) == [HOSTILE]
    assert len(Scripts(text).found) == 4


@pytest.mark.parametrize("rows", [(), (row(None),), (row(NAN), row(INF)), (row(ONE.double()),)])
def test_the_data_is_the_report(rows) -> None:
    found = report(*rows)
    data = data_of(html.page(found.as_json()))
    assert data["summary"] == found.as_json()["summary"]
    assert data["rows"]["count"] == len(rows)


def test_every_row_comes_back_from_its_columns() -> None:
    rows = [each.to_json() for each in (row(ONE), row(None), row(NAN, local=None), row(INF))]
    found = {key: unpacked(column) for key, column in columns(rows)["columns"].items()}
    for position, each in enumerate(rows):
        for key, value in each.items():
            if key in ("inherited", "local"):
                back = {name: found.get(f"{key}.{name}", [None] * 4)[position] for name in value or {}}
                assert back == (value or {})
            else:
                assert found.get(key, [None] * 4)[position] == value


def test_what_is_taken_from_others_is_what_the_note_says() -> None:
    noted = dict(re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", (VENDOR / "README.md").read_text(), re.MULTILINE))
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir()}
    del files["README.md"]
    assert noted == files


def test_the_licences_stand_in_the_file() -> None:
    text = html.page(report(row(ONE)).as_json())
    assert "Copyright (c) 2022 Leon Sorokin" in text
    assert "AG GRID LTD" in text


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        report(row(ONE)).to_html(tmp_path)


def test_no_rows_at_all() -> None:
    empty = Report("diverge", (), (), ())
    assert data_of(html.page(empty.as_json()))["rows"] == {"count": 0, "columns": {}}
