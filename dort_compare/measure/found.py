"""What a comparison found: of the values of all graphs, and of the whole model."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from dort_compare.measure.before_onnx.modules import ModuleRow
from dort_compare.measure.divergence import Divergence
from dort_compare.measure.half.precision import Precision
from dort_compare.measure.observer import Observed
from dort_compare.measure.optimized import Optimized
from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.rows import SEVERITY, Row


@dataclass(frozen=True)
class Values:
    """What was found of the values of all graphs, in order of execution.

    Those of a graph are of its first run in which a value departs by itself, or else of the first in which one inherits
    a departure, or of the first of all.
    """

    rows: tuple[Row, ...] = ()
    optimized: Optimized | None = None
    observed: tuple[Observed, ...] = ()
    precision: Precision = field(default_factory=Precision)

    @property
    def later_runs(self) -> dict[int, int]:
        """The number of the run, by graph, in which a value has the worst status, where that is not the first: of the
        lowered model, or else of the optimized one, or of an output of the program that ran."""
        rows = (*self.rows, *(self.optimized.rows if self.optimized else ()))
        ranked = [(SEVERITY.get(row.status, 0), row.graph, row.run) for row in rows]
        ranked += [(SEVERITY["diverges"], seen.graph, seen.run) for seen in self.observed if not seen.ok]
        shown: dict[int, int] = {}
        for _, graph, run in sorted(ranked, key=lambda each: -each[0]):
            shown.setdefault(graph, run)
        return {graph: run for graph, run in shown.items() if run > 1}

    @property
    def causes(self) -> dict[int, list[str]]:
        """The calls that depart by themselves, by graph."""
        found = defaultdict[int, list[str]](list)
        for row in self.rows:
            if row.status == "diverges":
                found[row.graph].append(row.call)
        return found


@dataclass(frozen=True)
class Whole:
    """What was found of the whole model: its outputs and gradients by every backend, the results of its modules, and
    the first of these that departs before ONNX."""

    outputs: tuple[OutcomeRow, ...]
    modules: tuple[ModuleRow, ...]
    departure: Divergence | None
