"""Options that several commands share. Nothing here imports torch: ``--help`` and completion are to be quick."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Any], Any]

PARTS = ("attention", "decoder", "model")
SOURCES = ("native", "hf")
EXPORTERS = ("native", "torch")
ENGINES = ("ort", "reference")
MEMORY = 32
MAX_RUNS = 32
MOST_VERBOSE = 3
"""The choices of the rooms below, which import torch; a test holds them to be the same."""

HELP = {"help_option_names": ["-h", "--help"]}
FILE = click.Path(path_type=Path)
COUNT = click.IntRange(min=1)
SEED = click.IntRange(0, 2**63 - 1)


def choice(name: str, choices: tuple[str, ...], text: str) -> Decorator:
    """An option that takes one of ``choices``, by default the first."""
    return click.option(name, type=click.Choice(choices), default=choices[0], show_default=True, help=text)


def size(name: str, default: int, text: str) -> Decorator:
    """An option that takes 1 or more."""
    return click.option(name, type=COUNT, metavar="N", default=default, show_default=True, help=text)


def provider(text: str) -> Decorator:
    """``--provider``: where."""
    return choice("--provider", ("cpu", "cuda"), text)


def seed(text: str) -> Decorator:
    """``--seed``."""
    return click.option("--seed", type=SEED, metavar="N", default=0, show_default=True, help=text)


def _as_effort(_context: click.Context, _option: click.Parameter, value: float | None) -> bool | float:
    """What ``compare`` calls ``suggest_fp32``; 0 stands for the floors."""
    return value or value is not None


dump = click.argument("dump", type=FILE)
graph = click.option("--graph", default=None, help="Only this graph of the dump: its number, or its name.")
model = click.option("--model", type=FILE, metavar="FILE", help="An ONNX file in the place of the graph's model.")
engine = choice("--engine", ENGINES, "What runs the models: ONNX Runtime, or ONNX's reference evaluator.")
memory = size("--memory", MEMORY, "MiB of torch's values that are compared at a time.")
max_runs = size("--max-runs", MAX_RUNS, "Of a graph that runs more than once so many runs are compared.")
repeats = click.option(
    "--repeat",
    "repeats",
    type=COUNT,
    metavar="N",
    default=1,
    show_default=True,
    help="How often ONNX Runtime computes each value; one that changes is named.",
)
exporter = choice("--exporter", EXPORTERS, "What lowers the graphs: our own lowerings, or PyTorch's exporter.")
opset = click.option(
    "--opset", "target_opset", type=int, metavar="N", help="ONNX opset.  [default: the newest ONNX Runtime takes]"
)
suggest_fp32 = click.option(
    "--suggest-fp32",
    type=click.FloatRange(0, 1, max_open=True),
    is_flag=False,
    flag_value=0,
    default=None,
    callback=_as_effort,
    help="Search for the few nodes to keep in float32; ERROR is a relative one to reach.  [default: the noise floor]",
    metavar="[ERROR]",
)
dump_folder = click.option(
    "--dump", type=FILE, metavar="FOLDER", help="Keep graphs, models and inputs, for check, repro, bisect."
)
verbose = click.option(
    "--verbose",
    type=click.IntRange(0, MOST_VERBOSE),
    metavar="N",
    default=0,
    show_default=True,
    help="Log the compilation to stderr: 1 its stages, 2 modules too, 3 operators too.",
)
html_file = click.option(
    "--html", "html_file", type=FILE, metavar="FILE", default=None, help="Write one HTML file that shows it."
)
json_file = click.option(
    "--json", "json_file", type=FILE, metavar="FILE", default=None, help="Write the result as JSON."
)
