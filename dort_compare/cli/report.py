"""``dort-compare report``: a JSON report as a page, or what changed between two."""

from __future__ import annotations

from pathlib import Path

import click

from dort_compare.cli import options
from dort_compare.cli.colour import show
from dort_compare.files import check_writable, write
from dort_compare.plain import printable


@click.command(context_settings=options.HELP, short_help="A JSON report as a page, or what changed between two.")
@click.argument("report", metavar="REPORT.json", type=options.FILE)
@click.argument("newer", metavar="[NEWER.json]", type=options.FILE, required=False)
@options.html_file
def report(*, report: Path, newer: Path | None, html_file: Path | None) -> bool:
    """Shows a report that --json wrote, or what got better and worse from one to a newer one.

    Exit status: of one report 1 where it diverges, of two 1 where something got worse.
    """
    from dort_compare.measure.changes import changes
    from dort_compare.report.changes import changes_text, summary
    from dort_compare.report.html import changes_page, page
    from dort_compare.report.reading import read_report

    if html_file is not None:
        check_writable(html_file)
    old = read_report(report)
    if newer is None:
        show(printable(summary(old)))
        if html_file is not None:
            write(html_file, page(old))
        return bool(old["verdict"] == "agree")
    new = read_report(newer)
    found = changes(old, new)
    show(changes_text(old, new, found))
    if html_file is not None:
        write(html_file, changes_page(old, new, found))
    return not any(each.change == "worse" for each in found)
