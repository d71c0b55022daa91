"""What got better and worse from run to run, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dort_compare.measure.changes import Change, Course
from dort_compare.measure.runs import ReportedRun
from dort_compare.plain import readable
from dort_compare.report.tables import new_table, number, rendered

_SHOWN = 30
_WORDS: dict[Change, str] = {"worse": "worse", "better": "better", "new": "new", "gone": "gone", "same": "the same"}
_VERSIONS = ("torch", "ONNX Runtime", "dort-compare")


def changes_text(runs: Sequence[ReportedRun], found: Sequence[Course]) -> str:
    """A line for each run, what the last two found, the counts, and what was ever not ok or changed.

    What is worse in the newest run than in the one before it stands first.
    """
    summaries = [f"run {i}: {run.summary}" for i, run in enumerate(runs, 1)]
    lines = [_runs_table(runs), "", *map(readable, summaries[-2:]), *_counts(len(runs), found)]
    for change, word in _WORDS.items():
        some = [each for each in found if each.latest == change and not each.is_quiet]
        some.sort(key=lambda each: (list(_WORDS).index(each.overall), -each.worst))
        if some:
            lines += ["", _table(word, some[:_SHOWN])]
        if len(some) > _SHOWN:
            lines.append(f"and {len(some) - _SHOWN} more that are {word}; --html FILE shows them")
    return "\n".join(lines)


def _runs_table(runs: Sequence[ReportedRun]) -> str:
    table = new_table("run", "report", "date", *_VERSIONS, "verdict", "departing", "worst error, in noise floors")
    for i, run in enumerate(runs, 1):
        told = (str(run.environment.get(name) or "-") for name in ("date", *_VERSIONS))
        table.add_row(str(i), run.name, *told, run.verdict, str(run.departing), _error(run.worst))
    return rendered(table)


def _counts(many: int, found: Sequence[Course]) -> Iterator[str]:
    """From the run before the newest, and, where that is another, from the first."""
    steps = {many - 1: Counter(each.latest for each in found if each.is_in(-2, -1))}
    if many > 2:
        steps[1] = Counter(each.overall for each in found if each.is_in(0, -1))
    for first, counts in steps.items():
        told = ", ".join(f"{counts[change]} {word}" for change, word in _WORDS.items() if counts[change])
        yield f"values, outputs and gradients, from run {first} to {many}: {told or 'none'}"


def _table(word: str, some: Sequence[Course]) -> str:
    columns = ("where", "name", "op", "status", "error, in noise floors", "since run", "since the first", "source")
    table = new_table(word, *columns)
    for each in some:
        statuses = [state.status if state else "-" for state in each.states]
        status = statuses[0] if len(set(statuses)) == 1 else " -> ".join(statuses)
        errors = " -> ".join(_error(state.error if state else None) for state in each.states)
        table.add_row(*each.key, status, errors, str(each.since + 1), _WORDS[each.overall], each.newest.source)
    return rendered(table)


def _error(error: float | None) -> str:
    return number(error) or "-"
