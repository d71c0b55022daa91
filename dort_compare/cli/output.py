"""Where a result goes: the terminal and files. ``outputs`` gives a command that makes a report all of these options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dort_compare.cli.colour import show
from dort_compare.cli.options import FILE
from dort_compare.errors import UsageError, shortened
from dort_compare.files import check_files, check_folder

if TYPE_CHECKING:
    from dort_compare.report import Report

FORMS = {
    "json": "Write all of it as JSON.",
    "html": "Write one HTML file that shows all of it.",
    "csv": "Write every value, output, gradient and update as CSV.",
    "junit": "Write the verdict, modules, outputs, gradients and updates as JUnit test cases.",
    "sarif": "Write the causes at their lines of source as SARIF, for code scanning.",
    "model_explorer": "Write node data for Model Explorer, which colour a dumped model.",
}
"""The options that name a file, or a folder, with their help; ``Report.to_<option>`` writes it."""
_FOLDERS = {"model_explorer"}

all_rows = click.option("--all", "everything", is_flag=True, help="Show every row, not only those that matter.")


@dataclass(frozen=True)
class Output:
    """What was asked for: ``files`` by their forms, and how much is printed."""

    files: Mapping[str, Path]
    is_quiet: bool = False

    def check(self, dump: Path | None = None, read: Iterable[Path] = ()) -> None:
        """Raises UsageError, before any work, where a file cannot be written, lies in the ``dump`` that is made, or is
        another one or what is ``read``."""
        check_files((path for form, path in self.files.items() if form not in _FOLDERS), read)
        for form, path in self.files.items():
            if form in _FOLDERS:
                check_folder(path)
            if dump is not None and dump.absolute() in (path.absolute(), *path.absolute().parents):
                raise UsageError(
                    f"{_flag(form)} {path} lies in the dump folder, which is replaced as a whole; put it beside"
                )

    def echo(self, text: str) -> None:
        """Prints what is not the verdict."""
        if not self.is_quiet:
            show(text)

    def tell(self, report: Report, text: str) -> bool:
        """Writes the files, then prints ``text``, or the verdict alone; returns whether all agrees."""
        from dort_compare.report.causes import verdict_line

        for form, path in self.files.items():
            getattr(report, f"to_{form}")(path)
        show(shortened(verdict_line(report)) if self.is_quiet else text)
        return report.verdict == "agree"


def outputs(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives ``command`` an ``output`` in the place of the options."""

    @functools.wraps(command)
    def with_output(*, quiet: bool, **given: Any) -> Any:
        files = {form: path for form in FORMS if (path := given.pop(f"{form}_file")) is not None}
        return command(output=Output(files, quiet), **given)

    options = [_file_option(form, text) for form, text in FORMS.items()]
    options.append(click.option("--quiet", "-q", is_flag=True, help="Print the verdict alone, in one line."))
    return functools.reduce(lambda made, option: option(made), reversed(options), with_output)


def _file_option(form: str, text: str) -> Callable[..., Any]:
    metavar = "FOLDER" if form in _FOLDERS else "FILE"
    return click.option(_flag(form), f"{form}_file", type=FILE, metavar=metavar, default=None, help=text)


def _flag(form: str) -> str:
    return f"--{form.replace('_', '-')}"
