"""Whether looking changed what was seen: outputs of the program that ran against those of the exposed models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from dort_compare.measure.floor import noise_floor
from dort_compare.measure.metrics import Distance, deviation, distance
from dort_compare.measure.rows import Row, json_number
from dort_compare.provenance import Phase
from dort_compare.trace.executions import Executed

Execution = Literal["lowered", "optimized"]


@dataclass(frozen=True)
class Observed:
    """An output of a graph: how far the program that ran, of which nothing is exposed, lies from an exposed model.

    ``execution`` says which: the model as it was lowered, or what ONNX Runtime's optimizers made of it.
    """

    phase: Phase
    graph: int
    output: str
    execution: Execution
    distance: Distance
    noise_floor: float
    ok: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "graph": self.graph,
            "output": self.output,
            "execution": self.execution,
            "distance": self.distance.to_json(),
            "noise_floor": json_number(self.noise_floor),
            "ok": self.ok,
        }


class Observer:
    """Holds ``shipped``, what the program computed of the recorded inputs by ONNX name, against the exposed values."""

    def __init__(self, phase: Phase, graph: int, execution: Execution, shipped: Mapping[str, torch.Tensor]) -> None:
        self._of = (phase, graph)
        self._execution = execution
        self._shipped = dict(shipped)
        self.seen: list[Observed] = []

    def see(self, executed: Executed, precision: torch.dtype | None, _row: Row | None = None) -> None:
        """Compares the value if it is an output, which was computed in ``precision`` at the coarsest.

        Noise is what two right computations may lie apart: twice what each of them may be from float64, or is.
        """
        own, name = executed.own, executed.onnx_value
        if own is None or name is None or name not in self._shipped:
            return
        shipped = self._shipped.pop(name)
        found = distance(own, shipped)
        floor = 0.0
        if not found.equal:
            exact, expected = executed.step.exact, executed.step.value
            is_measured = exact.dtype == torch.float64 and expected.is_floating_point()
            error = max(deviation(exact, value) or 0.0 for value in (expected, own)) if is_measured else None
            floor = 2 * noise_floor(precision, found.scale or 0.0, error, own.numel())
        ok = found.equal or (found.finding is None and found.max_abs is not None and found.max_abs <= floor)
        self.seen.append(Observed(*self._of, name, self._execution, found, floor, ok))
