"""From a graph to its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from torch import fx

from dort_compare import provenance
from dort_compare.backends.aot import compile_id
from dort_compare.backends.options import Options
from dort_compare.lowering import lower
from dort_compare.lowering.lowered import Lowered
from dort_compare.lowering.torch_export import export_with_torch
from dort_compare.provenance import Phase
from dort_compare.runtime import Program
from dort_compare.runtime.binding import devices_of
from dort_compare.stages import Stages

Built = tuple[Lowered, Program]
Reasons = Mapping[str, str]
"""Which FX nodes are refused, by name, and why."""


@dataclass(frozen=True)
class Building:
    """Makes the program of a graph. Raises what lowering and runtime raise.

    ``still`` names inputs that are constants; ``stages`` is the clock.
    """

    options: Options
    example_inputs: Sequence[Any]
    phase: Phase
    still: frozenset[str]
    stages: Stages

    def __call__(self, graph_module: fx.GraphModule) -> Built:
        return self.program_of(self.lowered(graph_module))

    def lowered(self, graph_module: fx.GraphModule) -> Lowered:
        exporter = lower if self.options.exporter == "native" else export_with_torch
        with self.stages("lower"):
            lowered = exporter(graph_module, self.phase, self.options.opset)
            sign(lowered)
            return lowered

    def program_of(self, lowered: Lowered) -> Built:
        program = Program(
            lowered.model,
            lowered.signature,
            self.options.session,
            devices_of(self.example_inputs),
            rewrites=bool(self.options.rewrites),
            still=self.still,
            stages=self.stages,
        )
        return lowered, program

    def refused(self, graph_module: fx.GraphModule) -> Reasons:  # noqa: ARG002  (Cached knows)
        """What a graph is known to be refused for: nothing, where that is not known."""
        return {}

    def refuse(self, graph_module: fx.GraphModule, reasons: Reasons) -> None:
        """Remembers for what a graph is refused, whatever process compiles it."""


def sign(lowered: Lowered) -> None:
    """Writes into a model what it is to this compilation: its phase, our version, torch's id of the compilation."""
    props = lowered.model.metadata_props
    props.update({provenance.PHASE: lowered.phase, provenance.VERSION: version("dort-compare")})
    props.pop(provenance.COMPILE_ID, None)
    if identity := compile_id():
        props[provenance.COMPILE_ID] = identity
