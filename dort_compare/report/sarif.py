"""The causes of a report as SARIF 2.1.0, which code scanning shows at the lines of the model's source.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dort_compare.measure.divergence import Divergence
from dort_compare.plain import printable
from dort_compare.report.causes import cause_text

if TYPE_CHECKING:
    from dort_compare.report.report import Report

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_RULE = "departs-from-eager"
_LINE = re.compile(r".+:[1-9]\d*")


def sarif_text(report: Report) -> str:
    """The log: a result at the line of each cause. Those that no line is known of are notifications, as code scanning
    refuses a whole file for a result without a place."""
    placed = [cause for cause in report.causes if _LINE.fullmatch(cause.source)]
    notifications = [_message(cause) for cause in report.causes if not _LINE.fullmatch(cause.source)]
    rule = {"id": _RULE, "shortDescription": {"text": "A value on ONNX Runtime departs from that of eager PyTorch."}}
    driver = {"name": "dort-compare", "version": version("dort-compare"), "rules": [rule]}
    run = {
        "tool": {"driver": driver},
        "results": [_result(cause) for cause in placed],
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notifications}],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _message(cause: Divergence) -> dict[str, Any]:
    return {"level": "error", "message": {"text": cause_text(cause)}}


def _result(cause: Divergence) -> dict[str, Any]:
    file, _, line = printable(cause.source).rpartition(":")
    place: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(file)}, "region": {"startLine": int(line)}}
    }
    if cause.module:
        place["logicalLocations"] = [{"fullyQualifiedName": printable(cause.module), "kind": "module"}]
    same = hashlib.sha256(printable("\0".join((cause.phase, cause.target, cause.module))).encode()).hexdigest()
    return {"ruleId": _RULE, **_message(cause), "locations": [place], "partialFingerprints": {"cause/v1": same}}


def _uri(file: str) -> str:
    """Relative to the current folder where the file lies in it: code scanning runs at the root of a checkout."""
    path = Path(file)
    if not path.is_absolute():
        return quote(path.as_posix())
    return quote(path.relative_to(Path.cwd()).as_posix()) if path.is_relative_to(Path.cwd()) else path.as_uri()
