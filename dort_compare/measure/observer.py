"""Whether looking changed what was seen: outputs of the program that ran against those of the exposed models."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import fx

from dort_compare.measure.distance.distances import Distance, Number
from dort_compare.measure.noise.floor import noise_floor
from dort_compare.measure.noise.gaps import Gaps
from dort_compare.measure.noise.inherited import Floor, InheritedError, inherited_error
from dort_compare.measure.noise.scatter import Sample, Scatter, samples
from dort_compare.measure.rows import json_number
from dort_compare.provenance import Phase
from dort_compare.trace import GraphRun, Step
from dort_compare.trace.four_executions import Executed
from dort_compare.trace.shaken import shaken

Execution = Literal["lowered", "optimized"]


@dataclass(frozen=True)
class Observed:
    """An output of a graph: how far the program that ran, of which nothing is exposed, lies from an exposed model.

    ``execution`` says which: the model as it was lowered, or what ONNX Runtime's optimizers made of it. ``run`` counts
    the runs of the graph, from 1.
    """

    phase: Phase
    graph: int
    output: str
    execution: Execution
    distance: Distance
    noise_floor: float
    ok: bool
    run: int = 1

    def to_json(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "graph": self.graph,
            "run": self.run,
            "output": self.output,
            "execution": self.execution,
            "distance": self.distance.to_json(),
            "noise_floor": json_number(self.noise_floor),
            "ok": self.ok,
        }


@dataclass(frozen=True)
class _Unsettled:
    """What departs by a number: where it stands among what was seen, torch's value, and the gaps of its elements."""

    position: int
    expected: torch.Tensor
    gaps: Gaps


class Observer:
    """Holds ``shipped``, what the program computed of the inputs of a run by ONNX name, against the exposed values.

    What was computed as the model ran may have been written since by what torch does not see, as numpy: with ``again``,
    which runs the program on the recorded inputs, only what departs then too is a departure.
    """

    def __init__(
        self,
        phase: Phase,
        graph: int,
        execution: Execution,
        shipped: Mapping[str, torch.Tensor],
        again: Callable[[], Mapping[str, torch.Tensor]] | None = None,
        run: int = 1,
    ) -> None:
        self._of = (phase, graph)
        self._run = run
        self._execution = execution
        self._shipped = dict(shipped)
        self._again = again and functools.cache(again)
        self.seen: list[Observed] = []
        self._unsettled: dict[fx.Node, _Unsettled] = {}

    def see(self, executed: Executed, precision: torch.dtype | None, _row: object) -> None:
        """Compares the value if it is an output, which was computed in ``precision`` at the coarsest.

        Noise is what two right computations may lie apart: twice what each of them may be from float64, or is.
        """
        own, name = executed.own, executed.onnx_value
        if own is None or name is None or name not in self._shipped:
            return
        shipped = self._shipped.pop(name)
        step = executed.step
        floor = functools.partial(_floor, precision, own.numel())
        error = _error(step, own, shipped, floor, precision)
        if not error.is_noise and self._again:
            shipped = self._again()[name]
            error = _error(step, own, shipped, floor, precision)
        found = error.distance.between("the exposed values", "the program that ran")
        if not error.is_noise and found.finding is None:
            gaps = error.gaps(own, shipped, floor)
            self._unsettled[step.node] = _Unsettled(len(self.seen), step.value, gaps)
        of = (*self._of, name, self._execution)
        self.seen.append(Observed(*of, found, error.noise_floor, error.is_noise, self._run))

    @property
    def unsettled(self) -> Mapping[fx.Node, torch.Tensor]:
        """Torch's values of outputs that depart by a number, which may be what rounding scatters them by."""
        return {node: unsettled.expected for node, unsettled in self._unsettled.items()}

    def settle(self, scatters: Mapping[fx.Node, Scatter]) -> None:
        """Lets be noise what lies no further off than right results scatter."""
        for node, unsettled in list(self._unsettled.items()):
            seen, scatter = self.seen[unsettled.position], scatters.get(node, Scatter())
            if scatter.covers(seen.distance, unsettled.gaps):
                self.seen[unsettled.position] = replace(seen, ok=True, noise_floor=scatter.floor)
                del self._unsettled[node]


def _error(
    step: Step, own: torch.Tensor, shipped: torch.Tensor, floor: Floor, precision: torch.dtype | None
) -> InheritedError:
    """The error of what was shipped; float64 is asked where it is not equal to ONNX's own value."""
    error = inherited_error(own, shipped, floor, precision)
    if error.distance.equal:
        return error
    exact = step.exact if step.exact.dtype == torch.float64 else None
    return inherited_error(own, shipped, floor, precision, exact, step.value)


def _floor(precision: torch.dtype | None, numel: int, scale: float, error: Number | None) -> float:
    return 2 * noise_floor(precision, scale, error, numel)


def settle(observer: Observer, run: GraphRun) -> None:
    """Settles what the observer of a run takes for a departure, where roundings by chance scatter torch's as far.

    A sample costs a run of the graph in float64; there are at most sixteen, and none where nothing is unsettled.
    """
    scatters: dict[fx.Node, Scatter] = {}

    def asks() -> bool:
        return bool(observer.unsettled)

    def scattered(seed: int, sample: Sample) -> dict[fx.Node, Scatter]:
        return _scattered(run, seed, sample, observer.unsettled)

    for _, found in samples(asks, scattered, f"{run.phase} graph {run.index}: "):
        scatters |= {node: scatters.get(node, Scatter()) | scatter for node, scatter in found.items()}
        observer.settle(scatters)


def _scattered(
    run: GraphRun, seed: int, sample: Sample, expected: Mapping[fx.Node, torch.Tensor]
) -> dict[fx.Node, Scatter]:
    """What a run with roundings by chance shows of what is ``expected``; of sizes that change with them, nothing."""
    found = {}

    def see(node: fx.Node, value: torch.Tensor) -> None:
        if node in expected and value.shape == expected[node].shape:
            found[node] = Scatter.of(expected[node], value, sample)

    shaken(seed, sample.roundings)(run.graph_module, list(run.inputs.values()), see)
    return found
