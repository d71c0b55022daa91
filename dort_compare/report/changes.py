"""What got better and worse from run to run, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import PurePath

from dort_compare.measure.history.changes import Change, Course
from dort_compare.measure.history.runs import ReportedRun
from dort_compare.plain import readable
from dort_compare.report.tables import new_table, number, rendered
from dort_compare.report.wording import wrapped

_SHOWN = 30
_WORDS: dict[Change, str] = {"worse": "worse", "better": "better", "new": "new", "gone": "gone", "same": "the same"}
_VERSIONS = ("torch", "ONNX Runtime", "dort-compare")


def changes_text(runs: Sequence[ReportedRun], found: Sequence[Course]) -> str:
    """A line for each run, what the last two found, the counts, and what was ever not ok or changed; in 80 to 100
    columns where names allow.

    What is worse in the newest run than in the one before it stands first.
    """
    summaries = [wrapped(readable(f"run {i}: {run.summary}")) for i, run in enumerate(runs, 1)]
    lines = [_runs_table(runs), *_alike(runs), "", *summaries[-2:], *_counts(len(runs), found)]
    for change, word in _WORDS.items():
        some = [each for each in found if each.latest == change and not each.is_quiet]
        some.sort(key=lambda each: (list(_WORDS).index(each.overall), -each.worst))
        if some:
            lines += ["", _table(word, some[:_SHOWN], len(runs))]
        if len(some) > _SHOWN:
            lines.append(f"and {len(some) - _SHOWN} more that are {word}; --html FILE shows them")
    return "\n".join(lines)


def _runs_table(runs: Sequence[ReportedRun]) -> str:
    """With the versions that differ; files by their names alone where these differ."""
    differing = [name for name in _VERSIONS if len({_version(run, name) for run in runs}) > 1]
    table = new_table("run", "report", "date", *differing, "verdict", "departing", "worst, in floors")
    names = [PurePath(run.name).name for run in runs]
    names = names if len(set(names)) == len(names) else [run.name for run in runs]
    for i, (run, name) in enumerate(zip(runs, names, strict=True), 1):
        date = str(run.environment.get("date") or "-").replace("T", " ")[:16]
        versions = (_version(run, each) for each in differing)
        table.add_row(str(i), name, date, *versions, run.verdict, str(run.departing), _error(run.worst))
    return rendered(table)


def _alike(runs: Sequence[ReportedRun]) -> Iterator[str]:
    """The versions that all runs have."""
    alike = [f"{name} {_version(runs[0], name)}" for name in _VERSIONS if len({_version(r, name) for r in runs}) == 1]
    if alike:
        yield wrapped(readable(f"all with {', '.join(alike)}"))


def _version(run: ReportedRun, name: str) -> str:
    return str(run.environment.get(name) or "-")


def _counts(many: int, found: Sequence[Course]) -> Iterator[str]:
    """From the run before the newest, and, where that is another, from the first."""
    steps = {many - 1: Counter(each.latest for each in found if each.is_in(-2, -1))}
    if many > 2:
        steps[1] = Counter(each.overall for each in found if each.is_in(0, -1))
    for first, counts in steps.items():
        told = ", ".join(f"{counts[change]} {word}" for change, word in _WORDS.items() if counts[change])
        yield f"values, outputs and gradients, from run {first} to {many}: {told or 'none'}"


def _table(word: str, some: Sequence[Course], many: int) -> str:
    """Each status, the error in the last two runs; of several runs, the change from the first too."""
    first = ("from first",) if many > 2 else ()
    table = new_table(word, "name", "status", "in noise floors", "since", *first, "source")
    for each in some:
        status = " -> ".join(state for state, _ in groupby(state.status if state else "-" for state in each.states))
        errors = " -> ".join(_error(state.error if state else None) for state in each.states[-2:])
        where = each.key.where if each.key.what == "value" else f"{each.key.what} {each.key.where}".strip()
        overall = (_WORDS[each.overall],) if first else ()
        source = PurePath(each.newest.source).name
        table.add_row(where, each.key.name, status, errors, f"run {each.since + 1}", *overall, source)
    return rendered(table)


def _error(error: float | None) -> str:
    return number(error) or "-"
