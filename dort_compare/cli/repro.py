"""``dort-compare repro``: one FX node of a dump as a folder for a bug report."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from dort_compare.cli import options


@click.command(context_settings=options.HELP, short_help="One node of a dump, for a bug report.")
@options.dump
@click.argument("node")
@click.option("--graph", default=None, help="The graph of the node: its number, or its name.")
@options.provider("Where ONNX Runtime runs it.")
@click.option("--out", type=options.FILE, metavar="FOLDER", required=True, help="The folder, new or empty.")
def repro(*, dump: Path, node: str, out: Path, **given: Any) -> None:
    """Writes the ONNX nodes of one FX node, its operands and expected values, and a script that runs them.

    DUMP is a folder that --dump, or compare(..., dump=FOLDER), has written; NODE is named as in a verdict, such as
    addmm. The script needs onnxruntime and numpy only.
    """
    from dort_compare.offline import repro as write_repro

    departs = write_repro(dump, node, out, **given)
    found = "shows the difference" if departs else f"shows that {node} agrees; check names what departs"
    click.echo(f"written to {out}: python {shlex.quote(str(out / 'repro.py'))} {found}")
