"""``dort-compare check``: the verdict on a dump alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dort_compare.cli.files import check_files, report_files, write_report
from dort_compare.dump import graphs_in
from dort_compare.offline import check as check_dump
from dort_compare.trace.executions import MEMORY

_COUNT = click.IntRange(min=1)
_FILE = click.Path(path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("dump", type=_FILE)
@click.option("--graph", default=None, help="Only this graph of the dump: its number, or its name.")
@click.option("--model", type=_FILE, default=None, help="An ONNX file in the place of the graph's model.")
@click.option(
    "--engine", type=click.Choice(("ort", "reference")), default="ort", show_default=True, help="What runs the models."
)
@click.option("--provider", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True, help="Where.")
@click.option(
    "--memory",
    default=MEMORY,
    type=_COUNT,
    show_default=True,
    help="MiB of torch's values that are compared at a time.",
)
@click.option(
    "--repeat", "repeats", default=1, type=_COUNT, show_default=True, help="How often each value is computed."
)
@report_files
def check(*, dump: Path, json_file: Path | None, html_file: Path | None, **given: Any) -> bool:
    """Compares the graphs of a dump, as they ran when it was made, with eager PyTorch."""
    check_files(json_file, html_file)
    report = check_dump(dump, **given)
    click.echo(str(report))
    if given["graph"] is None and (left := [each.name for each in graphs_in(dump) if each.run is None]):
        click.echo(f"not compared, for they did not run when the dump was made: {', '.join(left)}")
    write_report(report, json_file, html_file)
    return report.verdict == "agree"
