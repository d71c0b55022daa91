"""``dort-compare diff``: two ONNX models that share no names, value by value."""

from __future__ import annotations

from pathlib import Path

import click
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from dort_compare import onnx_diff
from dort_compare.errors import UsageError
from dort_compare.report.report import check_writable
from dort_compare.trace.graph_run import EngineName

_FILE = click.Path(path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("first", metavar="A.onnx", type=_FILE)
@click.argument("second", metavar="B.onnx", type=_FILE)
@click.option("--inputs", "inputs_file", type=_FILE, default=None, help="Inputs by name.  [default: random ones]")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Of random inputs.")
@click.option(
    "--engine", type=click.Choice(["ort", "reference"]), default="ort", show_default=True, help="What runs them."
)
@click.option(
    "--provider", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Of ONNX Runtime."
)
@click.option("--json", "json_file", type=_FILE, default=None, help="File for the report.")
@click.option("--all", "everything", is_flag=True, help="Show every pair and every value without one.")
def diff(
    first: Path,
    second: Path,
    *,
    inputs_file: Path | None,
    seed: int,
    engine: EngineName,
    provider: str,
    json_file: Path | None,
    everything: bool,
) -> bool:
    """Pairs the values of two ONNX models by dataflow and content and says where B departs from A first."""
    if json_file is not None:
        check_writable(json_file)
    inputs = None if inputs_file is None else _read(inputs_file)
    found = onnx_diff.diff(first, second, inputs, seed=seed, engine=engine, provider=provider)
    click.echo(found.text(everything=everything))
    if json_file is not None:
        found.to_json(json_file)
    return found.verdict == "agree"


def _read(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError, ValueError, KeyError) as problem:
        raise UsageError(f"{path} cannot be read as safetensors: {problem}") from None
