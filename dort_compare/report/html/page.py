"""The file: a report's JSON, our script and style, and the libraries that it needs, all in one."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

from dort_compare.measure.history.changes import Course
from dort_compare.measure.history.runs import ReportedRun
from dort_compare.report.html.columns import columns

_FOLDER = resources.files("dort_compare.report.html")
_LIBRARIES = ("vendor/uPlot-1.6.32.iife.min.js", "vendor/ag-grid-community-36.2.0.min.js")
_LICENCES = {"uPlot 1.6.32": "vendor/uPlot-LICENSE.txt", "AG Grid Community 36.2.0": "vendor/ag-grid-LICENSE.txt"}
_COMMON = ("dom", "frame", "values", "marks", "chart", "plot", "grid", "filters", "sections")
_SCRIPTS = (*_COMMON, "errors", "picture", "detail", "verdict", "main")
_CHANGES_SCRIPTS = (*_COMMON, "changes", "runs", "changes_main")
_DIFF_SCRIPTS = (*_COMMON, "errors", "diff", "diff_main")
_STYLES = ("vendor/uPlot-1.6.32.min.css", "assets/page.css")


def page(report: Mapping[str, Any]) -> str:
    """The page that shows what ``Report.as_json`` gives.

    What comes of the report stands in the file as data alone, with no "<" in it, and the page makes nothing but text of
    it. The file's policy lets no other script run and nothing be loaded.
    """
    optimized = report.get("optimized")
    rows = {
        "rows": columns(report["rows"]),
        "optimized": optimized and {**optimized, "rows": columns(optimized["rows"])},
    }
    return _file({**report, **rows}, _SCRIPTS)


def changes_page(runs: Sequence[ReportedRun], found: Sequence[Course]) -> str:
    """The page that shows what changed from run to run; it is made like ``page``."""
    data = {
        "runs": [run.to_json() for run in runs],
        "changes": columns([each.to_json() for each in found]),
    }
    return _file(data, _CHANGES_SCRIPTS)


def diff_page(diff: Mapping[str, Any]) -> str:
    """The page that shows what ``Diff.as_json`` gives; it is made like ``page``."""
    return _file({**diff, "rows": columns(diff["rows"])}, _DIFF_SCRIPTS)


def _file(data: Mapping[str, Any], names: Sequence[str]) -> str:
    scripts = [_read(name) for name in _LIBRARIES]
    scripts.append('"use strict";\n' + "\n".join(_read(f"assets/{name}.js") for name in names))
    return Template(_read("assets/page.html")).substitute(
        policy=_policy(scripts),
        licences="\n\n".join(f"{name}\n\n{_read(file)}" for name, file in _LICENCES.items()),
        style="\n".join(map(_read, _STYLES)),
        data=json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _policy(scripts: list[str]) -> str:
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
