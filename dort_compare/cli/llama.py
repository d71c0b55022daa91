"""``dort-compare llama``: the parts of a Llama through ONNX Runtime, side by side with eager."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import torch

from dort_compare.backends.options import EXPORTERS, Options
from dort_compare.cli.files import check_files, report_files, write_report
from dort_compare.cli.walk import Settings, walk
from dort_compare.dump import staged
from dort_compare.errors import RuntimeUnavailableError, UsageError
from dort_compare.models import PARTS, SOURCES
from dort_compare.trace.executions import MEMORY

_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def _switch(name: str, default: bool, text: str) -> Callable[[Any], Any]:
    """An option that takes 0 or 1."""
    choice = click.Choice(["0", "1"])
    return click.option(name, type=choice, default=str(int(default)), callback=_as_bool, show_default=True, help=text)


def _as_bool(_context: click.Context, _option: click.Parameter, value: str) -> bool:
    return value == "1"


def _choice(name: str, choices: tuple[str, ...], text: str) -> Callable[[Any], Any]:
    return click.option(name, type=click.Choice(choices), default=choices[0], show_default=True, help=text)


def _size(name: str, default: int, text: str) -> Callable[[Any], Any]:
    return click.option(name, type=click.IntRange(min=1), default=default, show_default=True, help=text)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@_choice("--part", PARTS, "What of the Llama is compared.")
@_switch("--backward", False, "Compare the gradients too.")
@_switch("--mixed", False, "Run under torch.autocast.")
@_choice("--mixed-dtype", tuple(_DTYPES), "The dtype of --mixed 1.")
@_switch("--cuda", False, "Run on the GPU.")
@_switch("--ortopt", True, "Optimize both models with ONNX Runtime before they are shown side by side.")
@click.option("--opset", type=int, default=None, help="ONNX opset.  [default: the newest ONNX Runtime takes]")
@_choice("--exporter", EXPORTERS, "What lowers the debug backend's graphs; onnxrt's are always native.")
@_switch("--dynamic", False, "Compile with symbolic sizes.")
@_choice("--source", SOURCES, "The project's own Llama, or that of transformers.")
@_choice("--attention", ("eager", "sdpa"), "How attention is computed.")
@_size("--layers", 1, "Decoder layers of the model part.")
@_size("--hidden", 512, "Hidden size.")
@_size("--heads", 8, "Attention heads.")
@click.option("--kv-heads", type=click.IntRange(min=1), default=None, help="Key and value heads.  [default: --heads]")
@_size("--intermediate", 2000, "Width of the MLP.")
@_size("--vocabulary", 4000, "Tokens that the model part knows.")
@_size("--seq", 1024, "Sequence length.")
@_size("--batch", 2, "Batch size.")
@_switch("--mask", False, "Give the model part a padding mask.")
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Seed of weights and inputs."
)
@_size("--memory", MEMORY, "MiB of torch's values that are compared at a time.")
@_size("--repeat", 1, "How often ONNX Runtime computes each value; one that changes is named.")
@click.option(
    "--suggest-fp32",
    type=click.FloatRange(0, 1, max_open=True),
    is_flag=False,
    flag_value=0,
    default=None,
    help="Search for the few nodes to keep in float32; ERROR is a relative one to reach.  [default: the noise floor]",
    metavar="[ERROR]",
)
@click.option("--dump", type=click.Path(path_type=Path), default=None, help="Folder that keeps graphs and inputs.")
@report_files
def llama(
    *,
    cuda: bool,
    mixed: bool,
    mixed_dtype: str,
    dump: Path | None,
    json_file: Path | None,
    html_file: Path | None,
    **given: Any,
) -> bool:
    """Compares a part of a Llama, run by ONNX Runtime, with eager PyTorch: outputs, gradients and every value."""
    if cuda and not torch.cuda.is_available():
        raise RuntimeUnavailableError("--cuda 1 needs a GPU and torch.cuda.is_available() is False; use --cuda 0")
    check_files(json_file, html_file)
    for flag, file in (("--json", json_file), ("--html", html_file)):
        if file is not None and dump is not None and dump.absolute() in file.absolute().parents:
            raise UsageError(f"{flag} {file} lies in the dump folder, which is replaced as a whole; put it beside")
    autocast = _DTYPES[mixed_dtype] if mixed else None
    given["opset"] = Options.of(exporter=given["exporter"], target_opset=given["opset"]).opset
    settings = Settings(device="cuda" if cuda else "cpu", autocast=autocast, **given)
    with _folder(dump) as folder:
        report = walk(settings, folder, shown_as=dump, echo=click.echo)
    write_report(report, json_file, html_file)
    return report.verdict == "agree"


@contextmanager
def _folder(dump: Path | None) -> Iterator[Path]:
    """Where the dump is written: the caller's folder once it is complete, else one that does not outlive the run."""
    if dump is not None:
        with staged(dump) as folder:
            yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="dort_compare_") as name:
            yield Path(name)
