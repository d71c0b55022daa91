"""``dort-compare bisect``: which optimizer of ONNX Runtime makes a dumped model depart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click
import onnx
import torch

from dort_compare.dump.model_file import read_model
from dort_compare.dump.reader import DumpedGraph, graphs_in
from dort_compare.dump.recorded import recorded_inputs
from dort_compare.errors import ExecutionError, UsageError
from dort_compare.measure.bisect import Bisection, bisect
from dort_compare.report.bisection import bisection_text
from dort_compare.report.report import SCHEMA, check_writable
from dort_compare.runtime.providers import SessionSettings

_FILE = click.Path(path_type=Path)


@click.command("bisect", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("dump", type=_FILE)
@click.option("--graph", default=None, help="Only this graph of the dump: its number, or its name.")
@click.option("--model", "model_file", type=_FILE, default=None, help="An ONNX file in the place of the graph's model.")
@click.option("--provider", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True, help="What runs it.")
@click.option("--json", "json_file", type=_FILE, default=None, help="File for the result.")
def bisect_dump(
    *, dump: Path, graph: str | None, model_file: Path | None, provider: str, json_file: Path | None
) -> bool:
    """Finds the optimizers of ONNX Runtime that make the models of a dump depart from what they compute without."""
    if json_file is not None:
        check_writable(json_file)
    chosen = _chosen(dump, graph)
    if model_file is not None and len(chosen) > 1:
        raise UsageError(f"--model takes the place of one graph; choose it with --graph {_names(list(chosen))}")
    found: dict[str, Bisection] = {}
    for each, inputs in chosen.items():
        model = each.model() if model_file is None else read_model(model_file)
        found[each.name] = _bisect(each, model, inputs, provider)
        click.echo(bisection_text(each.name, found[each.name]))
    if json_file is not None:
        graphs = {name: bisection.to_json() for name, bisection in found.items()}
        json_file.write_text(json.dumps({"schema": SCHEMA, "graphs": graphs}, indent=1, allow_nan=False) + "\n")
    return all(bisection.departure is None for bisection in found.values())


def _bisect(graph: DumpedGraph, model: onnx.ModelProto, inputs: Mapping[str, torch.Tensor], provider: str) -> Bisection:
    providers = SessionSettings(providers=(provider,) if provider == "cpu" else (provider, "cpu")).resolved_providers()
    missing = [value.name for value in model.graph.input if value.name not in inputs]
    if missing:
        raise UsageError(f"the model reads {', '.join(missing)}, which the inputs of {graph.name} do not hold")
    given = {name: value.to("cuda" if provider == "cuda" else "cpu") for name, value in inputs.items()}
    try:
        return bisect(model, given, providers)
    except ExecutionError as problem:
        raise UsageError(f"the model of {graph.name} does not run without optimizers either: {problem}") from None


def _chosen(dump: Path, graph: str | None) -> Mapping[DumpedGraph, Mapping[str, torch.Tensor]]:
    """The graphs that ran, with what went in; or that of the name or number ``graph``."""
    graphs = graphs_in(dump)
    if graph is not None:
        named = [each for i, each in enumerate(graphs) if graph in (each.name, str(i))]
        if not named:
            raise UsageError(f"{dump} has no graph {graph!r}; choose from {_names(graphs)}")
        graphs = named
    found = {each: inputs for each in graphs if (inputs := recorded_inputs(each)) is not None}
    if not found:
        raise UsageError(f"{dump} holds no inputs of {_names(graphs) or 'any graph'}: there is nothing to run")
    return found


def _names(graphs: list[DumpedGraph]) -> str:
    return ", ".join(graph.name for graph in graphs)
