"""From a graph to its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from dort_compare.backends.aot import lower_with, make_program
from dort_compare.backends.options import Options
from dort_compare.lowering.lowered import Lowered
from dort_compare.provenance import Phase
from dort_compare.runtime import Program
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
        with self.stages("lower"):
            return lower_with(self.options, graph_module, self.phase)

    def program_of(self, lowered: Lowered) -> Built:
        return lowered, make_program(self.options, lowered, self.example_inputs, self.still, self.stages)

    def refused(self, graph_module: fx.GraphModule) -> Reasons:  # noqa: ARG002  (Cached knows)
        """What a graph is known to be refused for: nothing, where that is not known."""
        return {}

    def refuse(self, graph_module: fx.GraphModule, reasons: Reasons) -> None:
        """Remembers for what a graph is refused, whatever process compiles it."""
