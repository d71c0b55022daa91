"""Whether looking changed what was seen: outputs of the program that ran against those of the exposed models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import fx

from dort_compare.measure.floor import noise_floor
from dort_compare.measure.metrics import Distance, deviation, distance
from dort_compare.measure.rows import Row, json_number
from dort_compare.measure.scatter import SAMPLES, Sample, Scatter
from dort_compare.provenance import Phase
from dort_compare.trace import GraphRun
from dort_compare.trace.executions import Executed
from dort_compare.trace.shaken import shaken

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
        self._departing: dict[fx.Node, tuple[int, torch.Tensor]] = {}
        """Which of `seen` depart, with torch's value."""

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
        if not ok:
            self._departing[executed.step.node] = (len(self.seen), executed.step.value)
        self.seen.append(Observed(*self._of, name, self._execution, found, floor, ok))

    def settle(self, run: GraphRun) -> None:
        """Lets that be noise, too, which torch's kernels scatter as far as where roundings in the graph fall by chance.

        Nothing runs where nothing departs. A sample costs a run of the graph in float64; there are at most sixteen.
        """
        scatters = dict.fromkeys(self._departing, Scatter())
        for seed, sample in enumerate(SAMPLES):
            departing = [n for n, (i, _) in self._departing.items() if not scatters[n].covers(self.seen[i].distance)]
            if not departing:
                break
            try:
                self._shake(run, seed, sample, scatters)
            except Exception:  # noqa: BLE001  (sizes and checks that depend on data may not stand a rounding)
                break
        for node, (i, _) in self._departing.items():
            if scatters[node].covers(self.seen[i].distance):
                self.seen[i] = replace(self.seen[i], ok=True, noise_floor=scatters[node].floor)

    def _shake(self, run: GraphRun, seed: int, sample: Sample, scatters: dict[fx.Node, Scatter]) -> None:
        """One run with roundings by chance; ``scatters`` grows by what it shows."""

        def see(node: fx.Node, value: torch.Tensor) -> None:
            if node in scatters:
                scatters[node] |= Scatter.of(self._departing[node][1], value, sample)

        shaken(seed, sample.roundings)(run.graph_module, list(run.inputs.values()), see)
