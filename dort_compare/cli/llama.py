"""``dort-compare llama``: the parts of a Llama through ONNX Runtime, side by side with eager."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from dort_compare.cli import options
from dort_compare.cli.output import Output, outputs
from dort_compare.errors import RuntimeUnavailableError, UsageError


def _switch(name: str, default: bool, text: str) -> Callable[[Any], Any]:
    """An option that takes 0 or 1."""
    choice = click.Choice(["0", "1"])
    return click.option(name, type=choice, default=str(int(default)), callback=_as_bool, show_default=True, help=text)


def _as_bool(_context: click.Context, _option: click.Parameter, value: str) -> bool:
    return value == "1"


@click.command(context_settings=options.HELP, short_help="A Llama against eager PyTorch.")
@options.choice("--part", options.PARTS, "What of the Llama is compared.")
@_switch("--backward", False, "Compare the gradients too.")
@_switch("--mixed", False, "Run under torch.autocast.")
@options.choice("--mixed-dtype", ("float16", "bfloat16"), "The dtype of --mixed 1.")
@_switch("--cuda", False, "Run on the GPU.")
@_switch("--ortopt", True, "Optimize both models with ONNX Runtime before they are shown side by side.")
@options.opset
@options.choice("--exporter", options.EXPORTERS, "What lowers the debug backend's graphs; onnxrt's are always native.")
@_switch("--dynamic", False, "Compile with symbolic sizes.")
@options.choice("--source", options.SOURCES, "The project's own Llama, or that of transformers.")
@options.choice("--attention", ("eager", "sdpa"), "How attention is computed.")
@options.size("--layers", 1, "Decoder layers of the model part.")
@options.size("--hidden", 512, "Hidden size.")
@options.size("--heads", 8, "Attention heads.")
@click.option(
    "--kv-heads", type=options.COUNT, metavar="N", default=None, help="Key and value heads.  [default: --heads]"
)
@options.size("--intermediate", 2000, "Width of the MLP.")
@options.size("--vocabulary", 4000, "Tokens that the model part knows.")
@options.size("--seq", 1024, "Sequence length.")
@options.size("--batch", 2, "Batch size.")
@_switch("--mask", False, "Give the model part a padding mask.")
@options.seed("Seed of weights and inputs.")
@options.memory
@options.repeats
@options.suggest_fp32
@options.dump_folder
@options.verbose
@outputs
def llama(*, cuda: bool, mixed: bool, mixed_dtype: str, dump: Path | None, output: Output, **given: Any) -> bool:
    """Compares a part of a Llama, run by ONNX Runtime, with eager PyTorch: outputs, gradients and every value."""
    import torch

    from dort_compare.backends.options import Options
    from dort_compare.cli.walk import Settings, walk
    from dort_compare.report.causes import verdict_line

    if cuda and not torch.cuda.is_available():
        raise RuntimeUnavailableError("--cuda 1 needs a GPU and torch.cuda.is_available() is False; use --cuda 0")
    if given["layers"] > 1 and given["part"] != "model":
        raise UsageError(
            f"--layers {given['layers']}: part {given['part']} is one layer; leave --layers out, or choose --part model"
        )
    output.check(dump)
    autocast = getattr(torch, mixed_dtype) if mixed else None
    given["opset"] = Options.of(exporter=given["exporter"], target_opset=given.pop("target_opset")).opset
    settings = Settings(device="cuda" if cuda else "cpu", autocast=autocast, **given)
    with _folder(dump) as folder:
        report = walk(settings, folder, shown_as=dump, echo=output.echo)
    return output.tell(report, verdict_line(report))


@contextmanager
def _folder(dump: Path | None) -> Iterator[Path]:
    """Where the dump is written: the caller's folder once it is complete, else one that does not outlive the run."""
    from dort_compare.dump import staged

    if dump is not None:
        with staged(dump) as folder:
            yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="dort_compare_") as name:
            yield Path(name)
