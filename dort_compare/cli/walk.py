"""Walks through one comparison and tells each step: eager, the two backends, their models side by side, the verdict."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import torch

from dort_compare.backends import CompiledGraph, DebugBackend, onnxrt
from dort_compare.cli.side_by_side import side_by_side
from dort_compare.comparison import Effort, compare_with
from dort_compare.dtypes import dtype_name
from dort_compare.dump.reader import DumpedGraph, graphs_in
from dort_compare.models import LlamaConfig, build
from dort_compare.report import Report
from dort_compare.report.causes import cause_text
from dort_compare.report.outcomes import outcome_table, tensors_table
from dort_compare.report.side_by_side import side_by_side_table
from dort_compare.report.terminal import half_lines, optimized_and_observed_lines
from dort_compare.runtime.providers import by_itself, with_cpu
from dort_compare.trace import Outcome
from dort_compare.trace.call import Call

Echo = Callable[[str], None]
_FX_LINES = 20


@dataclass(frozen=True)
class Settings:
    """What ``dort-compare llama`` was asked for; sizes in elements."""

    part: str
    backward: bool
    autocast: torch.dtype | None
    device: str
    ortopt: bool
    opset: int
    exporter: str
    dynamic: bool
    source: str
    attention: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int | None
    intermediate: int
    vocabulary: int
    seq: int
    batch: int
    mask: bool
    seed: int
    memory: int
    repeats: int
    suggest_fp32: bool | float
    verbose: int

    def as_json(self) -> dict[str, Any]:
        """By name, as strict JSON."""
        return {**asdict(self), "autocast": dtype_name(self.autocast) if self.autocast else None}

    def model(self) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        """The module and its arguments; what floats among them asks for its gradient in a backward comparison."""
        config = LlamaConfig(
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.kv_heads,
            intermediate=self.intermediate,
            vocabulary=self.vocabulary,
            layers=self.layers,
            attention=self.attention,
        )
        sizes = {"batch": self.batch, "seq": self.seq, "seed": self.seed, "device": self.device, "mask": self.mask}
        module, args = build(self.part, config, source=self.source, **sizes)  # type: ignore[arg-type]
        return module, tuple(arg.requires_grad_(self.backward and arg.is_floating_point()) for arg in args)

    @property
    def options(self) -> dict[str, Any]:
        """The options that both backends share; graphs in pieces could not be set side by side."""
        return {"providers": with_cpu(self.device), "target_opset": self.opset, "fallback": False}


def walk(settings: Settings, folder: Path, shown_as: Path | None, echo: Echo) -> Report:
    """Compares, dumping into ``folder``, and prints the steps in order, all but the verdict; returns the report."""
    module, args = settings.model()
    _title(echo, "settings")
    for name, value in asdict(settings).items():
        echo(f"{name:13}{value}")
    call = Call(args, backward=settings.backward, autocast=settings.autocast)
    session = {"session_options": by_itself() if settings.ortopt else {}}
    ours = {"exporter": settings.exporter, "verbose": settings.verbose, **session, **settings.options}
    debug = DebugBackend(dump=folder, dump_prefix="debug", **ours)
    effort = Effort(settings.memory, settings.repeats, settings.ortopt, settings.suggest_fp32)
    fast = functools.partial(onnxrt, options={"dump": folder, "dump_prefix": "onnxrt", **settings.options})
    comparison = compare_with(module, call, debug, settings.dynamic or None, effort, {"onnxrt": fast})
    report = comparison.report
    _title(echo, "eager")
    _tell_outcome(echo, comparison.eager)
    for name in ("onnxrt", "debug"):
        _title(echo, f"{name} backend, distance from eager")
        echo(outcome_table([row for row in report.outputs if row.backend == name]))
    _tell_dump(echo, folder, shown_as)
    _tell_models(echo, settings, folder, comparison.graphs)
    if report.precision.half_values:
        _title(echo, "half precision")
        echo("\n".join(half_lines(report)))
    _title(echo, "verdict")
    for line in optimized_and_observed_lines(report):
        echo(line)
    for cause in report.causes[1:]:
        echo(f"also: {cause_text(cause)}")
    return replace(report, settings={**settings.as_json(), "dump": shown_as and str(shown_as)})


def _tell_outcome(echo: Echo, outcome: Outcome) -> None:
    echo(tensors_table("output", outcome.outputs))
    if outcome.gradients:
        echo(tensors_table("gradient", outcome.gradients))


def _tell_dump(echo: Echo, folder: Path, shown_as: Path | None) -> None:
    _title(echo, "dumped files" + ("" if shown_as else " (not kept; --dump DIR keeps them)"))
    for path in sorted(folder.iterdir()):
        echo(f"{path.stat().st_size:>12,}  {(shown_as or folder) / path.name}")


def _tell_models(echo: Echo, settings: Settings, folder: Path, graphs: Sequence[CompiledGraph]) -> None:
    """The graph of the phase that was asked for: its FX text, and its two models."""
    dumped = graphs_in(folder)
    phase = "backward" if settings.backward else graphs[0].phase
    graph = next(g for g in graphs if g.phase == phase)
    ours = _only(dumped, "debug", phase)
    theirs = _only(dumped, "onnxrt", phase)
    _title(echo, f"FX graph ({phase}), first {_FX_LINES} lines")
    echo("\n".join(ours.fx_text().strip().splitlines()[:_FX_LINES]))
    models = {"onnxrt": theirs.model(), "debug": ours.model()}
    for name, model in models.items():
        _tell_io(echo, name, model)
    optimized = ", optimized by ONNX Runtime" if settings.ortopt else ""
    _title(echo, f"side by side ({phase}): onnxrt | debug{optimized}")
    if ours.fx_text() != theirs.fx_text():
        echo("not shown: the two backends were given FX graphs that differ, as in the order of their inputs")
        return
    echo("= same   ~ paired but different   - only in onnxrt   + only in debug")
    echo(side_by_side_table(side_by_side(models["onnxrt"], models["debug"], graph, settings.ortopt)))


def _only(dumped: Sequence[DumpedGraph], prefix: str, phase: str) -> DumpedGraph:
    return next(g for g in dumped if g.name.startswith(f"{prefix}_") and g.phase == phase)


def _tell_io(echo: Echo, name: str, model: onnx.ModelProto) -> None:
    _title(echo, f"{name}: inputs and initializers")
    for value in model.graph.input:
        kind = value.type.tensor_type
        dims = "x".join(str(dim.dim_param or dim.dim_value) for dim in kind.shape.dim) or "scalar"
        echo(f"input        {onnx.TensorProto.DataType.Name(kind.elem_type).lower():9} {dims:16} {value.name}")
    for tensor in model.graph.initializer:
        dims = "x".join(map(str, tensor.dims)) or "scalar"
        echo(f"initializer  {onnx.TensorProto.DataType.Name(tensor.data_type).lower():9} {dims:16} {tensor.name}")


def _title(echo: Echo, text: str) -> None:
    echo(f"\n-- {text}")
