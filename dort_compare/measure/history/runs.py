"""A report as one run of several: what it says of each value, output and gradient."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dort_compare.measure.rollup import in_floors
from dort_compare.measure.rows import json_number

Json = Mapping[str, Any]
_ONE_MODEL = 0.5
"""How much of the smaller report the other must have, to be of the same model."""


class Key(NamedTuple):
    """What stays the same from run to run: of a value its graph, FX node and op.

    ``what`` is "value", "output", "gradient" or "update", ``where`` the graph of a value or the backend of an output.
    """

    what: str
    where: str
    name: str
    target: str


@dataclass(frozen=True)
class State:
    """A value, output or gradient in one run.

    ``error`` is in units of its noise floor, of a value the larger of the local and the inherited one; None where
    nothing was compared.
    """

    status: str
    error: float | None
    module: str = ""
    source: str = ""


@dataclass(frozen=True)
class ReportedRun:
    """One of the runs that are compared: what its report says of itself, and the state of all that it holds."""

    name: str
    verdict: str
    summary: str
    settings: Json
    environment: Json
    states: Mapping[Key, State]

    @property
    def departing(self) -> int:
        """How many values depart by themselves, and how many outputs and gradients do."""
        return sum(state.status == "diverges" for state in self.states.values())

    @property
    def worst(self) -> float | None:
        """The largest error, in noise floors; None where nothing was compared."""
        return max((state.error for state in self.states.values() if state.error is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        told = {name: value for name, value in vars(self).items() if name != "states"}
        return {**told, "departing": self.departing, "worst": json_number(self.worst)}


def run_of(report: Json, name: str = "") -> ReportedRun:
    """The run that a report, as ``Report.as_json`` gives it, tells of. Graphs count within their phase."""
    return ReportedRun(
        name=name,
        verdict=report["verdict"],
        summary=str(report.get("summary") or report["verdict"]),
        settings=report.get("settings") or {},
        environment=report.get("environment") or {},
        states={**dict(_values(report)), **dict(_outputs(report))},
    )


def is_one_model(one: ReportedRun, other: ReportedRun) -> bool:
    """Whether half of what the smaller has, ops of modules and gradients, is in the other too."""
    fewer, more = sorted((_traits(one), _traits(other)), key=len)
    return len(fewer & more) >= _ONE_MODEL * len(fewer)


def _traits(run: ReportedRun) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = {("op", s.module, key.target) for key, s in run.states.items() if key.what == "value"}
    return found | {(key.what, key.name) for key in run.states if key.what == "gradient"}


def _values(report: Json) -> Iterator[tuple[Key, State]]:
    numbers: Counter[str] = Counter()
    of_graph: dict[tuple[str, int], int] = {}
    for row in report["rows"]:
        graph = row["phase"], row["graph"]
        if graph not in of_graph:
            of_graph[graph] = numbers[row["phase"]]
            numbers[row["phase"]] += 1
        # the floor is that of the local error; inherited errors that are noise may be many of them
        compared = ("local",) if row["status"] == "ok" and row["local"] else ("local", "inherited")
        errors = [_in_floors(row[which], row.get("noise_floor")) for which in compared if row[which]]
        state = State(row["status"], max(errors, default=None), row["module"], row["source"])
        yield Key("value", f"{row['phase']} {of_graph[graph]}", row["fx_node"], row["target"]), state


def _outputs(report: Json) -> Iterator[tuple[Key, State]]:
    for row in report["outputs"]:
        error = _in_floors(row["distance"], row.get("noise_floor")) if row["distance"] else None
        yield Key(row["kind"], row["backend"], row["name"], ""), State("ok" if row["ok"] else "diverges", error)


def _in_floors(gap: Json, floor: Any) -> float:
    largest, floor = (each if isinstance(each, (int, float)) else None for each in (gap.get("max_abs"), floor))
    return math.inf if gap.get("finding") else in_floors(largest, floor)
