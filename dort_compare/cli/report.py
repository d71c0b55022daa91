"""``dort-compare report``: a JSON report as a page, or what changed from one to the next."""

from __future__ import annotations

from pathlib import Path

import click

from dort_compare.cli import options
from dort_compare.cli.colour import show
from dort_compare.files import check_files, write
from dort_compare.plain import readable


@click.command(context_settings=options.HELP, short_help="A JSON report as a page, or what changed over several.")
@click.argument("reports", metavar="REPORT.json [NEWER.json ...]", type=options.FILE, nargs=-1, required=True)
@options.html_file
def report(*, reports: tuple[Path, ...], html_file: Path | None) -> bool:
    """Shows a report that --json wrote, or, of several, the oldest first, what got better and worse from run to run.

    Exit status: of one report 1 where it diverges, of several 1 where something is worse in the newest than in the one
    before it.
    """
    from dort_compare.measure.history.changes import courses
    from dort_compare.report.changes import changes_text
    from dort_compare.report.html import changes_page
    from dort_compare.report.reading import read_runs

    if html_file is not None:
        check_files([html_file], reports)
    if len(reports) == 1:
        return _alone(reports[0], html_file)
    runs = read_runs(reports)
    found = courses(runs)
    show(changes_text(runs, found))
    if html_file is not None:
        write(html_file, changes_page(runs, found))
    return not any(each.latest == "worse" for each in found)


def _alone(file: Path, html_file: Path | None) -> bool:
    from dort_compare.measure.history.runs import run_of
    from dort_compare.report.html import page
    from dort_compare.report.reading import read_report

    found = read_report(file)
    show(readable(run_of(found).summary))
    if html_file is not None:
        write(html_file, page(found))
    return bool(found["verdict"] == "agree")
