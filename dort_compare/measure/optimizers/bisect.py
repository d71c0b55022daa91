"""Which of ONNX Runtime's optimizers make a model depart from what it computes without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from dort_compare.errors import ExecutionError
from dort_compare.measure.optimizers.ddmin import smallest
from dort_compare.measure.optimizers.onnx_error import Departure, Unoptimized, Values
from dort_compare.runtime.optimizers import LEVELS, OFF, RULES, optimizers_of
from dort_compare.runtime.providers import Provider, SessionSettings
from dort_compare.runtime.session import make_session
from dort_compare.trace.as_it_is import AS_IT_IS
from dort_compare.trace.onnx import optimized


@dataclass(frozen=True)
class Blamed:
    """An optimizer, what departs when of all that are to blame it alone is on, and the others it needs for that."""

    optimizer: str
    needs: tuple[str, ...]
    departure: Departure

    def to_json(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer, "needs": list(self.needs), "departure": self.departure.to_json()}


@dataclass(frozen=True)
class Forced:
    """What departs with all optimizers off, and the names of what changes the model all the same, to be run at all."""

    departure: Departure
    changes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"departure": self.departure.to_json(), "changes": list(self.changes)}


@dataclass(frozen=True)
class Bisection:
    """What was found: ``departure`` is that of the model with all optimizers of the lowest ``level`` that has one.

    ``blamed`` is a smallest set of optimizers without which the model does not depart; it is empty where it departs
    even without all that ONNX Runtime names. ``tried`` are those that change the model, ``sessions`` counts the models
    that were run. ``forced`` is a departure of the unoptimized model, from which all others are measured, from what its
    nodes make one by one.
    """

    level: str | None
    departure: Departure | None
    blamed: tuple[Blamed, ...]
    tried: tuple[str, ...]
    sessions: int
    forced: Forced | None = None

    @property
    def departs(self) -> bool:
        """Whether anything does, optimizers on or off."""
        return self.departure is not None or self.forced is not None

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": "diverge" if self.departs else "agree",
            "level": self.level,
            "departure": self.departure.to_json() if self.departure else None,
            "without_optimizers": self.forced.to_json() if self.forced else None,
            "optimizers": [each.to_json() for each in self.blamed],
            "tried": list(self.tried),
            "sessions": self.sessions,
        }


def bisect(model: onnx.ModelProto, inputs: Values, providers: Sequence[Provider]) -> Bisection:
    """Finds the optimizers that make ``model`` depart on ``inputs`` (by the names of its inputs), levels first.

    The model departs where an output, or a value that survives the optimizers computed of right operands, lies further
    from that of the unoptimized model than noise, and where it fails. All of ONNX Runtime's optimizers are on to begin
    with, those too that our programs switch off. A model without nodes has nothing to optimize, and is not run.

    Raises ExecutionError where the unoptimized model does not run.
    """
    if not model.graph.node:
        return Bisection(None, None, (), (), 0)
    right = Unoptimized(model, inputs, providers)
    forced, search = _forced(right), _Search(right)
    for level in LEVELS:
        departure = search.departure(level, ())
        if departure is not None:
            tried = search.optimizers(level)
            return Bisection(level, departure, search.blame(level, tried), tuple(tried), search.sessions, forced)
    return Bisection(None, None, (), tuple(search.changing(list(LEVELS)[-1], ())), search.sessions, forced)


def _forced(right: Unoptimized) -> Forced | None:
    changes = tuple(optimizers_of(right.model, OFF, (), right.providers))
    if not changes:
        return None
    departure = right.inside(optimized(right.model, AS_IT_IS, right.providers), alone=True)
    return Forced(departure, changes) if departure else None


class _Search:
    def __init__(self, right: Unoptimized) -> None:
        self._right = right
        self._found: dict[tuple[str, frozenset[str]], Departure | None] = {}

    @property
    def sessions(self) -> int:
        return len(self._found)

    def departure(self, level: str, disabled: Sequence[str]) -> Departure | None:
        """What departs at a level where some optimizers are off."""
        key = level, frozenset(disabled)
        if key not in self._found:
            self._found[key] = self._departure(level, disabled)
        return self._found[key]

    def _departure(self, level: str, disabled: Sequence[str]) -> Departure | None:
        right = self._right
        settings = SessionSettings(session_options={"graph_optimization_level": LEVELS[level], "log_severity_level": 4})
        try:
            made = optimized(right.model, settings, right.providers, disabled)
            inside = right.inside(made)
            if inside is not None:
                return inside
            session = make_session(right.model, settings, right.providers, disabled)
            results = session.run(right.inputs, dict.fromkeys(right.outputs, right.device)) if right.outputs else []
        except ExecutionError as problem:
            return Departure(str(problem))
        return right.at_outputs(dict(zip(right.outputs, results, strict=True)))

    def optimizers(self, level: str) -> list[str]:
        """The optimizers that change the model, and those that change it once these are off."""
        found: list[str] = []
        while True:
            further = [name for name in self.changing(level, found) if name not in found]
            if not further:
                return found
            found += further
            if self.departure(level, found) is None:
                return found

    def changing(self, level: str, disabled: Sequence[str]) -> list[str]:
        """The optimizers that change the model where some are off."""
        return optimizers_of(self._right.model, level, disabled, self._right.providers)

    def blame(self, level: str, tried: Sequence[str]) -> tuple[Blamed, ...]:
        """A smallest set of optimizers to switch off: of some that only depart together, it holds one."""
        if self.departure(level, tried) is not None:
            return ()
        culprits = smallest(tried[::-1], lambda off: self.departure(level, off) is None)
        for name in [name for name in culprits if name in RULES]:
            culprits = self._by_rules(level, culprits, name)
        return tuple(self._blamed(level, name, culprits, tried) for name in culprits)

    def _by_rules(self, level: str, culprits: list[str], transformer: str) -> list[str]:
        """``culprits`` with the rules of ``transformer`` that are to blame in its place, if they are known."""
        others = [name for name in culprits if name != transformer]
        rules = RULES[transformer]
        if self.departure(level, [*others, *rules]) is not None:
            return culprits
        return [*others, *smallest(rules, lambda off: self.departure(level, [*others, *off]) is None)]

    def _blamed(self, level: str, name: str, culprits: Sequence[str], tried: Sequence[str]) -> Blamed:
        others = [other for other in culprits if other != name]
        free = [other for other in tried if other not in culprits and name not in RULES.get(other, ())]

        def departure(needed: Sequence[str]) -> Departure | None:
            return self.departure(level, [*others, *(other for other in free if other not in needed)])

        needs = smallest(free, lambda needed: departure(needed) is not None)
        found = departure(needs)
        assert found is not None
        return Blamed(name, tuple(needs), found)
