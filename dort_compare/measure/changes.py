"""Two reports of one model at two times: what got better, and what worse."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dort_compare.measure.rollup import in_floors
from dort_compare.measure.rows import SEVERITY, json_number

Json = Mapping[str, Any]
Change = Literal["worse", "better", "same", "new", "gone"]
_CLEAR = 2.0
"""How often an error beyond its noise floor must have grown or shrunk to be told."""


@dataclass(frozen=True)
class Changed:
    """A value, or an output or gradient of the model, in the old report and in the new one.

    ``what`` is "value", "output" or "gradient", ``where`` the graph of a value; statuses are None where a report does
    not have it. The errors are in units of their noise floors: of values the larger of the local and the inherited one.
    """

    change: Change
    what: str
    where: str
    name: str
    target: str
    module: str
    source: str
    old_status: str | None
    new_status: str | None
    old_error: float | None
    new_error: float | None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "old_error": json_number(self.old_error), "new_error": json_number(self.new_error)}


@dataclass(frozen=True)
class _Entry:
    status: str
    error: float | None
    row: Json


_NOTHING = _Entry("", None, {})


def changes(old: Json, new: Json) -> list[Changed]:
    """Every value, output and gradient of two reports, as ``Report.as_json`` gives them, in the order of the new one.

    Values are the same where graph, FX node and op are, graphs where they are the same of their phase. Worse is a
    status that is further from ok, an error beyond its noise floor that has
    doubled, or a value that is no longer compared.
    """
    before, after = dict(_entries(old)), dict(_entries(new))
    return [_changed(key, before.get(key), after.get(key)) for key in {**after, **before}]


def counted(found: Sequence[Changed]) -> Mapping[str, int]:
    """How many of each change."""
    return Counter(each.change for each in found)


def _entries(report: Json) -> Iterator[tuple[tuple[str, ...], _Entry]]:
    numbers: Counter[str] = Counter()
    of_graph: dict[tuple[str, int], int] = {}
    for row in report["rows"]:
        graph = row["phase"], row["graph"]
        if graph not in of_graph:
            of_graph[graph] = numbers[row["phase"]]
            numbers[row["phase"]] += 1
        where = f"{row['phase']} {of_graph[graph]}"
        errors = [_in_floors(row[which], row["noise_floor"]) for which in ("local", "inherited") if row[which]]
        error = max(errors, default=None)
        yield ("value", where, row["fx_node"], row["target"]), _Entry(row["status"], error, row)
    for row in report["outputs"]:
        key = (row["kind"], row["backend"], row["name"], "")
        error = _in_floors(row["distance"], row["noise_floor"]) if row["distance"] else None
        yield key, _Entry("ok" if row["ok"] else "diverges", error, row)


def _changed(key: tuple[str, ...], old: _Entry | None, new: _Entry | None) -> Changed:
    what, where, name, target = key
    row = (new or old or _NOTHING).row
    change: Change = "new" if old is None else "gone" if new is None else _between(old, new)
    place = row.get("module", ""), row.get("source", "")
    statuses = old.status if old else None, new.status if new else None
    errors = old.error if old else None, new.error if new else None
    return Changed(change, what, where, name, target, *place, *statuses, *errors)


def _between(old: _Entry, new: _Entry) -> Change:
    if old.status != new.status:
        return "worse" if _rank(new) > _rank(old) else "better"
    if old.error is None or new.error is None or max(old.error, new.error) <= 1:
        return "same"
    if new.error > _CLEAR * old.error:
        return "worse"
    return "better" if old.error > _CLEAR * new.error else "same"


def _rank(entry: _Entry) -> float:
    """What is not compared is worse than what is right, and better than what is known to be wrong."""
    return SEVERITY.get(entry.status, 0.5)


def _in_floors(gap: Json, floor: Any) -> float:
    largest, floor = (each if isinstance(each, (int, float)) else None for each in (gap.get("max_abs"), floor))
    return math.inf if gap.get("finding") else in_floors(largest, floor)
