"""Reports of one model at several times: what got better, and what worse, from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from dort_compare.measure.history.runs import Key, ReportedRun, State
from dort_compare.measure.rows import SEVERITY, json_number

Change = Literal["worse", "better", "new", "gone", "same"]
_CLEAR = 2.0
"""How often an error beyond its noise floor must have grown or shrunk to be told."""


@dataclass(frozen=True)
class Course:
    """A value, output or gradient through the runs, the oldest first; a state is None where the run does not have it.

    Worse is a status that is further from ok, an error beyond its noise floor that has doubled, or a value that is no
    longer compared.
    """

    key: Key
    states: tuple[State | None, ...]

    @property
    def latest(self) -> Change:
        """The change from the run before the newest to the newest; what neither has is gone."""
        return self._since(-2)

    @property
    def overall(self) -> Change:
        """The change from the first run to the newest; what neither has is gone."""
        return self._since(0)

    def is_in(self, *positions: int) -> bool:
        """Whether any of the runs at these positions has it."""
        return any(self.states[position] for position in positions)

    @property
    def since(self) -> int:
        """The position of the first run from which on it is what it is in the newest."""
        position = len(self.states) - 1
        while position and _between(self.states[position - 1], self.states[-1]) == "same":
            position -= 1
        return position

    @property
    def is_quiet(self) -> bool:
        """Whether it was ok wherever it was, and neither better nor worse than before."""
        steps = (_between(*step) for step in pairwise(self.states))
        return all(state.status == "ok" for state in self._known) and not {"worse", "better"}.intersection(steps)

    @property
    def worst(self) -> float:
        """The largest error of all runs, in noise floors; 0 where nothing was compared."""
        return max((state.error or 0.0 for state in self._known), default=0.0)

    @property
    def newest(self) -> State:
        """As it was last seen."""
        return self._known[-1]

    def _since(self, position: int) -> Change:
        return _between(self.states[position], self.states[-1]) if self.states[-1] else "gone"

    @property
    def _known(self) -> list[State]:
        return [state for state in self.states if state]

    def to_json(self) -> dict[str, Any]:
        """``statuses`` and ``errors`` by the positions of their runs."""
        states = {str(i): state for i, state in enumerate(self.states) if state}
        return {
            **self.key._asdict(),
            **{name: getattr(self, name) for name in ("latest", "overall", "since", "is_quiet")},
            **{name: getattr(self.newest, name) for name in ("module", "source")},
            "statuses": {i: state.status for i, state in states.items()},
            "errors": {i: json_number(state.error) for i, state in states.items()},
        }


def courses(runs: Sequence[ReportedRun]) -> list[Course]:
    """Every value, output and gradient of two or more runs, the oldest first; those of the newest run stand first."""
    keys = {key: None for run in reversed(runs) for key in run.states}
    return [Course(key, tuple(run.states.get(key) for run in runs)) for key in keys]


def _between(old: State | None, new: State | None) -> Change:
    if old is None or new is None:
        return "new" if new else "gone" if old else "same"
    if old.status != new.status:
        return "worse" if _rank(new) > _rank(old) else "better"
    if old.error is None or new.error is None or max(old.error, new.error) <= 1:
        return "same"
    if new.error > _CLEAR * old.error:
        return "worse"
    return "better" if old.error > _CLEAR * new.error else "same"


def _rank(state: State) -> float:
    """What is not compared is worse than what is right, and better than what is known to be wrong."""
    return SEVERITY.get(state.status, 0.5)
