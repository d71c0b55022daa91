"""The files that a command leaves its report in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import click

from dort_compare.report.report import check_writable

_F = TypeVar("_F", bound=Callable[..., object])


class _Report(Protocol):
    def to_json(self, path: Path) -> None: ...
    def to_html(self, path: Path) -> None: ...


def report_files(command: _F) -> _F:
    """Adds ``--json FILE`` and ``--html FILE``, handed over as ``json_file`` and ``html_file``."""
    for kind, text in (("html", "One HTML file that shows the report."), ("json", "File for the report.")):
        option = click.option(
            f"--{kind}", f"{kind}_file", type=click.Path(path_type=Path), default=None, help=text, metavar="FILE"
        )
        command = option(command)
    return command


def check_files(*files: Path | None) -> None:
    """Raises UsageError where one of them cannot be written: before a long run, not after it."""
    for file in files:
        if file is not None:
            check_writable(file)


def write_report(report: _Report, json_file: Path | None, html_file: Path | None) -> None:
    """Writes those that were asked for."""
    if json_file is not None:
        report.to_json(json_file)
    if html_file is not None:
        report.to_html(html_file)
