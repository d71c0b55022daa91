"""``dort-compare repro``: one FX node of a dump as a folder for a bug report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dort_compare.offline import repro as write_repro


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("dump", type=click.Path(path_type=Path))
@click.argument("node")
@click.option("--graph", default=None, help="The graph of the node: its number, or its name.")
@click.option("--provider", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True, help="What runs it.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The folder, new or empty.")
def repro(*, dump: Path, node: str, out: Path, **given: Any) -> None:
    """Writes the ONNX nodes of one FX node, its operands and expected values, and a script that runs them."""
    write_repro(dump, node, out, **given)
    click.echo(f"written to {out}: python {out / 'repro.py'} shows the difference")
