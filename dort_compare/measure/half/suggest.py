"""Searches for the few lines of a model that, kept in float32, bring its results back inside their floor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from dort_compare.measure.half.fewest import fewest
from dort_compare.measure.half.rehearsal import Key, Rehearsal, Unit
from dort_compare.measure.half.suggestion import KeptNode, Mend, ResultError, Suggestion
from dort_compare.trace import GraphRun
from dort_compare.trace.training_step import TrainingStep, training_steps

FEW = 8
"""More lines than that are no mend."""
Line = tuple[Unit, ...]


def suggest_fp32(runs: Sequence[GraphRun], target: float | None = None) -> Suggestion:
    """The fewest nodes whose computation in float32 brings every output and gradient inside its floor.

    ``target`` is a relative error (of norms) to take the place of the floors. A loss scale that cures float16 gradients
    goes before float32. Lines of the model are searched first, then the nodes of the lines found; none of the result
    can be spared. Each question runs the forward and backward graphs once on torch's kernels: some 2k log2(n / k) times
    for k of n lines. Where more than ``FEW`` lines are needed the search ends with that.
    """
    steps = training_steps(runs)
    if not steps:
        return Suggestion("not searched", "the graphs were cut into pieces, through which gradients cannot be followed")
    rehearsal = Rehearsal(steps)
    floors = {key: floor if target is None else target for key, floor in rehearsal.floors.items()}
    return _Search(steps, rehearsal, floors).suggestion()


class _Search:
    """Asks a rehearsal and remembers the answers."""

    def __init__(self, steps: Sequence[TrainingStep], rehearsal: Rehearsal, floors: Mapping[Key, float]) -> None:
        self._steps = steps
        self._rehearsal = rehearsal
        self._floors = floors
        self._known: dict[tuple[frozenset[Unit], float], Mapping[Key, float]] = {(frozenset(), 1.0): rehearsal.before}
        self._void: frozenset[Key] = frozenset()
        self._out_of_reach: frozenset[Key] = frozenset()
        self._questions = math.inf

    def suggestion(self) -> Suggestion:
        if self._rehearsal.tangents_underflow:
            self._floors = {}  # of gradients that are lost before they enter, no error can be told
            reason = "the gradients of the outputs underflow in float16 before they enter the graph"
            return self._told("loss scale", reason, scale=self._rehearsal.loss_scale)
        if self._beyond():
            self._void = self._rehearsal.void & self._floors.keys()
            self._floors = {key: floor for key, floor in self._floors.items() if key not in self._void}
        if not self._beyond():
            return self._told("none needed", "on torch's kernels every output and gradient is inside its floor")
        scale, units = self._useful_scale(), self._rehearsal.units
        if left := self._beyond(scale=scale):
            self._out_of_reach = frozenset(left & self._beyond(units, scale))
        if scale > 1 and not self._beyond(scale=scale):
            return self._told("loss scale", "gradients underflow in float16, which a loss scale cures", scale=scale)
        if not self._beyond():
            return self._told("none suffices", "what is beyond its floor stays there", units)
        found = self._fewest(units, scale)
        if found is None:
            return self._told("none suffices", f"more than {FEW} lines would have to be in float32", units, scale)
        mend: Mend = "loss scale and float32" if scale > 1 else "float32"
        return self._told(mend, "these bring every output and gradient inside its floor", found, scale)

    def _useful_scale(self) -> float:
        """The loss scale, where it brings a result inside its floor, by itself or beside float32; else 1."""
        scale = self._rehearsal.loss_scale
        ways = ((), self._rehearsal.units)
        return scale if scale > 1 and any(self._beyond(some, scale) < self._beyond(some) for some in ways) else 1.0

    def _fewest(self, units: Sequence[Unit], scale: float) -> list[Unit] | None:
        """The fewest units of the fewest lines; None where these are too many."""
        lines: dict[tuple[str, str], Line] = {}
        for unit in units:
            line = (unit.module, unit.source)
            lines[line] = (*lines.get(line, ()), unit)
        try:
            self._allow(len(lines))
            found = fewest(
                list(lines.values()), lambda some: not self._beyond([u for line in some for u in line], scale)
            )
        except _TooManyError:
            return None
        among = [unit for line in found for unit in line]
        if len(found) > FEW or self._beyond(among, scale):
            return None
        try:
            self._allow(len(among))
            ops = fewest(among, lambda some: not self._beyond(some, scale))
        except _TooManyError:
            return among
        return among if self._beyond(ops, scale) else ops

    def _allow(self, candidates: int) -> None:
        """Sets how many questions the search for the few of so many candidates may ask."""
        self._questions = 2 * FEW * (math.log2(max(candidates / FEW, 1)) + 1)

    def _beyond(self, units: Sequence[Unit] = (), scale: float = 1.0) -> set[Key]:
        """The results that lie beyond their floors with ``units`` in float32, but for those out of reach."""
        errors = self._errors(units, scale)
        return {key for key, floor in self._floors.items() if errors[key] > floor} - self._out_of_reach

    def _errors(self, units: Sequence[Unit], scale: float) -> Mapping[Key, float]:
        known = (frozenset(units), scale)
        if known not in self._known:
            if self._questions < 1:
                raise _TooManyError
            self._questions -= 1
            self._known[known] = self._rehearsal.errors(units, scale)
        return self._known[known]

    def _told(self, mend: Mend, reason: str, units: Sequence[Unit] = (), scale: float = 1.0) -> Suggestion:
        before, after = self._rehearsal.before, self._errors(units, scale)
        reason += "".join(f"; {note}" for note in self._notes())
        return Suggestion(
            mend,
            reason,
            tuple(self._nodes(units)) if mend != "none suffices" else (),
            scale if scale > 1 else None,
            tuple(ResultError(k[1], k[2], self._floors[k], before[k], after[k]) for k in self._floors),
            len({(unit.module, unit.source) for unit in self._rehearsal.units}),
            self._rehearsal.runs,
            tuple(sorted(name for _, _, name in self._out_of_reach)),
        )

    def _notes(self) -> Iterator[str]:
        if self._rehearsal.stand_ins:
            yield f"{self._rehearsal.stand_ins} tangents were not finite, fixed random ones stood in for them"
        if self._void:
            yield f"{', '.join(name for _, _, name in sorted(self._void))}: zero but for rounding, and not judged"
        if self._out_of_reach:
            yield f"but for {len(self._out_of_reach)} beyond it even with everything in float32"

    def _nodes(self, units: Sequence[Unit]) -> Iterator[KeptNode]:
        for i, step in enumerate(self._steps):
            names = {name for unit in units if unit.step == i for name in unit.nodes}
            for run in step.graphs:
                for node in run.graph_module.graph.nodes:
                    if node.name in names and node.op == "call_function":
                        names.remove(node.name)  # a backward graph may compute a forward node again
                        yield KeptNode.at(run, node)


class _TooManyError(Exception):
    """The search would ask more questions than the few that it looks for are worth."""
