"""``dort-compare run``: a model of the caller's through ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from dort_compare.cli import options
from dort_compare.cli.output import Output, all_rows, outputs

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "bfloat16": "bfloat16", "float16": "float16"}


def _files(_context: click.Context, _argument: click.Parameter, begun: str) -> list[CompletionItem]:
    return [CompletionItem(begun, type="file")]


@click.command(context_settings=options.HELP, short_help="A model of yours against eager PyTorch.")
@click.argument("factory", shell_complete=_files)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="SPEC",
    help="A random input, in the place of the factory's; once for each.",
)
@click.option("--backward", is_flag=True, help="Compare the gradients too.")
@click.option("--loss", metavar="MODULE:NAME", help="Function of what the model returns; its gradients are compared.")
@click.option("--mixed", type=click.Choice(tuple(_DTYPES)), default=None, help="Run under torch.autocast.")
@click.option("--dynamic", is_flag=True, default=None, help="Compile with symbolic sizes.")
@click.option(
    "--compile-backend",
    "compile_backends",
    multiple=True,
    metavar="NAME",
    help="Hold this backend of torch.compile (inductor, module:function) to eager too, at outputs and gradients.",
)
@click.option("--optimized", is_flag=True, help="Compare the model that ONNX Runtime's optimizers make, too.")
@options.suggest_fp32
@options.exporter
@options.opset
@options.provider("Where it runs; the model and its inputs are moved there.")
@options.seed("Seed of torch before the factory is called, and of random inputs.")
@options.memory
@options.repeats
@options.max_runs
@options.dump_folder
@options.verbose
@all_rows
@outputs
def run(
    *, factory: str, inputs: Sequence[str], mixed: str | None, everything: bool, output: Output, **given: Any
) -> bool:
    """Compares a model of yours, run by ONNX Runtime, with eager PyTorch: outputs, gradients and every value.

    FACTORY is package.module:name or path/to/file.py:name. What bears that name is a torch.nn.Module, or is called
    without arguments, or with those that follow, which are literals: 'torch.nn:Linear(16, 4)'. It returns one of

    \b
      module                   with --input
      (module, inputs)         a tensor, a tuple, or a dict of keyword arguments
      (module, args, kwargs)

    An input may be a tensor or its description, SPEC: [NAME=]DTYPE[SIZES][:[LOW:]HIGH], with torch's dtypes or those
    of FX graphs (f32, i64). Floats are drawn from the normal distribution, integers from 0 and 1, or below HIGH.

    \b
      float32[2,16]            a positional argument
      ids=int64[2,128]:4000    the keyword argument ids, from 0 to 3999

    \b
    Examples:
      dort-compare run model.py:make --backward --loss model.py:loss
      dort-compare run torchvision.models:resnet18 --input 'float32[1,3,64,64]'
      dort-compare run mypackage.nets:tiny --mixed bf16 --compile-backend inductor
    """
    from dort_compare.cli.trial import trial

    output.check(given["dump"])
    report = trial(factory, inputs, mixed=_DTYPES[mixed] if mixed else None, **given)
    return output.tell(report, report.text(everything=everything))
