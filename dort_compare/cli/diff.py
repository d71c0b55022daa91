"""``dort-compare diff``: two ONNX models that share no names, value by value."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dort_compare.cli import options
from dort_compare.errors import UsageError
from dort_compare.files import check_files
from dort_compare.plain import printable
from dort_compare.problems import said

if TYPE_CHECKING:
    import torch

    from dort_compare.trace.graph_run import EngineName


@click.command(context_settings=options.HELP, short_help="Two ONNX models against each other.")
@click.argument("first", metavar="A.onnx", type=options.FILE)
@click.argument("second", metavar="B.onnx", type=options.FILE)
@click.option(
    "--inputs",
    "inputs_file",
    type=options.FILE,
    metavar="FILE",
    help="Inputs by their names, as safetensors.  [default: random ones]",
)
@options.seed("Seed of random inputs.")
@options.engine
@options.provider("Where ONNX Runtime runs them.")
@options.json_file
@options.html_file
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
    html_file: Path | None,
    everything: bool,
) -> bool:
    """Pairs the values of two ONNX models by dataflow and content and says where B departs from A first.

    The models may come from two exporters, or one from the other by an optimizer or by hand: names and order are free.
    """
    from dort_compare import onnx_diff
    from dort_compare.dump.model_file import files_of

    written = [file for file in (json_file, html_file) if file is not None]
    check_files(written, chain(files_of(first), files_of(second), filter(None, [inputs_file])))
    inputs = None if inputs_file is None else _read(inputs_file)
    beside = () if inputs_file is not None else map(_dumped_inputs, (first, second))
    dumped = next(filter(os.path.isfile, beside), None)
    with _hinting(dumped):
        found = onnx_diff.diff(first, second, inputs, seed=seed, engine=engine, provider=provider)
    click.echo(found.text(everything=everything))
    if dumped is not None:
        click.echo(f"\nthe inputs of the dump: --inputs {printable(shlex.quote(str(dumped)))}")
    if json_file is not None:
        found.to_json(json_file)
    if html_file is not None:
        found.to_html(html_file)
    return found.verdict == "agree"


def _dumped_inputs(model: Path) -> Path:
    """Where the inputs of a dump are whose model this is."""
    return model.parent / f"{model.stem}.inputs.safetensors"


@contextmanager
def _hinting(dumped: Path | None) -> Iterator[None]:
    """Who is asked for inputs is told of those of a dump."""
    try:
        yield
    except UsageError as problem:
        if dumped is None or not str(problem).endswith("give --inputs"):
            raise
        raise UsageError(f"{problem} {printable(str(dumped))}") from None


def _read(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return load_file(path)
    except (OSError, SafetensorError, ValueError, KeyError) as problem:
        raise UsageError(
            f"{path} cannot be read as safetensors: {said(problem)}; name a file of tensors by the names of inputs"
        ) from None
