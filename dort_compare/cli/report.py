"""``dort-compare report``: a JSON report as a page, or what changed between two."""

from __future__ import annotations

from pathlib import Path

import click

from dort_compare.cli.files import check_files
from dort_compare.measure.changes import changes
from dort_compare.report.changes import changes_text, summary
from dort_compare.report.html import changes_page, page
from dort_compare.report.reading import read_report
from dort_compare.report.report import write
from dort_compare.report.tables import printable

_FILE = click.Path(path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("report", metavar="REPORT.json", type=_FILE)
@click.argument("newer", metavar="[NEWER.json]", type=_FILE, required=False)
@click.option("--html", "html_file", type=_FILE, default=None, metavar="FILE", help="One HTML file that shows it.")
def report(*, report: Path, newer: Path | None, html_file: Path | None) -> bool:
    """Shows a report that --json wrote, or what got better and worse from one to a newer one.

    Exit status: of one report 1 where it diverges, of two 1 where something got worse.
    """
    check_files(html_file)
    old = read_report(report)
    if newer is None:
        click.echo(printable(summary(old)))
        if html_file is not None:
            write(html_file, page(old))
        return bool(old["verdict"] == "agree")
    new = read_report(newer)
    found = changes(old, new)
    click.echo(changes_text(old, new, found))
    if html_file is not None:
        write(html_file, changes_page(old, new, found))
    return not any(each.change == "worse" for each in found)
