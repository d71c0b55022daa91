"""A report as JUnit XML, which the pages of CI servers show.

There is a test case for the verdict, for each module in each graph, for each output, gradient and update, and a skipped
one for each graph break: their names stay the same from run to run, so that a server can tell since when one fails.
Those of FX nodes count what came before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from dort_compare.measure.distance.distances import Distance
from dort_compare.measure.rows import Row
from dort_compare.plain import printable
from dort_compare.report.causes import BETWEEN_GRAPHS, verdict_line
from dort_compare.report.tables import max_abs, number

if TYPE_CHECKING:
    from dort_compare.report.report import Report

_COUNTED = {"failures": "failure", "skipped": "skipped"}


def junit_text(report: Report) -> str:
    """The XML document."""
    suites = [suite for suite in _suites(report) if len(suite)]
    root = ET.Element("testsuites", {"name": "dort-compare"})
    root.extend(suites)
    for each in (root, *suites):
        counts = {"tests": "testcase", **_COUNTED}
        each.attrib |= {name: str(len(each.findall(f".//{tag}"))) for name, tag in counts.items()} | {"errors": "0"}
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suites(report: Report) -> Iterator[ET.Element]:
    suite = _suite("verdict")
    case = _case(suite, "agrees with eager")
    if report.verdict != "agree":
        _add(case, "failure", verdict_line(report), report.text())
    yield suite
    yield from _of_graphs(report.rows)
    suite = _suite("graph breaks")
    for reason in dict.fromkeys(report.graph_breaks):
        _add(_case(suite, reason), "skipped", BETWEEN_GRAPHS)
    yield suite
    for backend in dict.fromkeys(row.backend for row in report.outputs):
        suite = _suite(f"outputs and gradients of {backend}")
        for row in (row for row in report.outputs if row.backend == backend):
            case = _case(suite, f"{row.kind} {row.name}")
            if not row.ok:
                _add(case, "failure", f"{_apart(row.distance)} from eager, {number(row.noise_floor)} is noise")
        yield suite


def _of_graphs(rows: Sequence[Row]) -> Iterator[ET.Element]:
    graphs: dict[tuple[int, str], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        graphs[row.graph, row.phase][row.module].append(row)
    for (graph, phase), modules in graphs.items():
        suite = _suite(f"{phase} graph {graph}")
        for module, found in modules.items():
            _judge(_case(suite, module or "(model)"), found)
        yield suite


def _judge(case: ET.Element, rows: Sequence[Row]) -> None:
    """Fails the case of a module where a value departs by itself; what only inherits is no failure of the module."""
    departing = [row for row in rows if row.status == "diverges"]
    if departing:
        place, _, line = departing[0].source.rpartition(":")
        if place:
            case.attrib |= {"file": printable(place), "line": line}
        _add(case, "failure", _text(departing[0]), "\n".join(map(_text, departing)))
    elif all(row.inherited is None for row in rows):
        _add(case, "skipped", f"nothing was compared: {rows[0].reason}")


def _apart(found: Distance | None) -> str:
    """With the whole of a finding, unlike a cell of a table."""
    return found.finding if found is not None and found.finding else max_abs(found)


def _text(row: Row) -> str:
    found = row.reason or f"{_apart(row.local or row.inherited)}, where {number(row.noise_floor)} is noise"
    return printable(f"{row.fx_node} ({row.target}) at {row.source or 'an unknown line'}: {found}")


def _suite(name: str) -> ET.Element:
    return ET.Element("testsuite", {"name": printable(name)})


def _case(suite: ET.Element, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", {"classname": f"dort-compare.{suite.get('name')}", "name": printable(name)})


def _add(case: ET.Element, tag: str, message: str, text: str = "") -> None:
    ET.SubElement(case, tag, {"message": printable(message)}).text = text or None
