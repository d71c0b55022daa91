"""``dort-compare bisect``: which optimizer of ONNX Runtime makes a dumped model depart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dort_compare.offline import bisected
from dort_compare.report.bisection import bisection_text
from dort_compare.report.report import SCHEMA, check_writable

_FILE = click.Path(path_type=Path)


@click.command("bisect", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("dump", type=_FILE)
@click.option("--graph", default=None, help="Only this graph of the dump: its number, or its name.")
@click.option("--model", type=_FILE, default=None, help="An ONNX file in the place of the graph's model.")
@click.option("--provider", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True, help="What runs it.")
@click.option("--json", "json_file", type=_FILE, default=None, help="File for the result.")
def bisect(*, dump: Path, json_file: Path | None, **given: Any) -> bool:
    """Finds the optimizers of ONNX Runtime that make the models of a dump depart from what they compute without."""
    if json_file is not None:
        check_writable(json_file)
    found = {}
    for name, bisection in bisected(dump, **given):
        found[name] = bisection
        click.echo(bisection_text(name, bisection))
    if json_file is not None:
        graphs = {name: bisection.to_json() for name, bisection in found.items()}
        json_file.write_text(json.dumps({"schema": SCHEMA, "graphs": graphs}, indent=1, allow_nan=False) + "\n")
    return all(bisection.departure is None for bisection in found.values())
