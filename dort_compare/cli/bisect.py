"""``dort-compare bisect``: which optimizer of ONNX Runtime makes a dumped model depart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dort_compare.cli import options
from dort_compare.files import check_files, write


@click.command(context_settings=options.HELP, short_help="Which of ONNX Runtime's optimizers departs.")
@options.dump
@options.graph
@options.model
@options.provider("Where ONNX Runtime runs them.")
@options.json_file
def bisect(*, dump: Path, json_file: Path | None, **given: Any) -> bool:
    """Finds the optimizers of ONNX Runtime that make the models of a dump depart from what they compute without,
    and says where they depart from that with all of them off. Whether it is what torch computes, check tells.

    DUMP is a folder that --dump, or compare(..., dump=FOLDER), has written.
    """
    from dort_compare.offline import bisected
    from dort_compare.offline.runs import files_read
    from dort_compare.report.bisection import bisection_text
    from dort_compare.report.report import SCHEMA

    if json_file is not None:
        check_files([json_file], files_read(dump, given["model"]))
    found = {}
    for name, bisection in bisected(dump, **given):
        found[name] = bisection
        click.echo(bisection_text(name, bisection))
    if json_file is not None:
        graphs = {name: bisection.to_json() for name, bisection in found.items()}
        write(json_file, json.dumps({"schema": SCHEMA, "graphs": graphs}, indent=1, allow_nan=False) + "\n")
    return not any(bisection.departs for bisection in found.values())
