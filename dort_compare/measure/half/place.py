"""Where in the graphs, and in the model, something in half precision stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from torch import fx

from dort_compare.provenance import Phase, Provenance
from dort_compare.trace import GraphRun


@dataclass(frozen=True)
class NodePlace:
    """An FX node, its ATen target, the module it belongs to and the line of the caller's code."""

    graph: int
    phase: Phase
    fx_node: str
    target: str
    module: str
    source: str

    @classmethod
    def at(cls, run: GraphRun, node: fx.Node, *further: Any) -> Self:
        """That of a node of a run, with the ``further`` fields of a subclass."""
        at = Provenance.of(node, run.phase)
        return cls(run.index, run.phase, at.fx_node, at.aten_target, run.module_of(node), at.source, *further)
