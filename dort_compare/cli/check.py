"""``dort-compare check``: the verdict on a dump alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dort_compare.dump import graphs_in
from dort_compare.offline import check as check_dump
from dort_compare.report.model_explorer import check_folder
from dort_compare.report.report import check_writable
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
@click.option("--json", "json_file", type=_FILE, default=None, help="File for the report.")
@click.option("--model-explorer", type=_FILE, default=None, help="Folder for node data of Model Explorer.")
def check(*, dump: Path, json_file: Path | None, model_explorer: Path | None, **given: Any) -> bool:
    """Compares the graphs of a dump, as they ran when it was made, with eager PyTorch."""
    if json_file is not None:
        check_writable(json_file)
    if model_explorer is not None:
        check_folder(model_explorer)
    report = check_dump(dump, **given)
    click.echo(str(report))
    if given["graph"] is None and (left := [each.name for each in graphs_in(dump) if each.run is None]):
        click.echo(f"not compared, for they did not run when the dump was made: {', '.join(left)}")
    if json_file is not None:
        report.to_json(json_file)
    if model_explorer is not None:
        report.to_model_explorer(model_explorer)
    return report.verdict == "agree"
