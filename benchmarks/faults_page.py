"""What was measured about planted faults, as a Markdown page."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from fault_subjects import Subject
from fault_trials import CLEAR
from workers import Result, Task

from dort_compare.models import PARTS

SINGLE, TRIPLE = 0.99, 0.95
_RULES = [
    "A fault *counts* where it moves the result of its op by more than four times the noise floor that the clean",
    "graph reports, its ONNX nodes run alone on torch's operands. *Blamed*: the FX node of the fault alone is",
    "reported to diverge, and first. Discarded: ONNX Runtime refuses the model, or a shape or dtype differs.",
    "",
]
Results = Mapping[Task, Result]
Trial = Mapping[str, Any]


def page(results: Results, command: str) -> str:
    """The tables, and a line for each fault that was not blamed and each false alarm."""
    singles, triples = list(_trials(results, "faults")), list(_trials(results, "triples"))
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "onnxruntime-gpu", "transformers"))
    title = "Planted faults" if singles or triples else "Graphs that nothing is wrong with"
    lines = [f"# {title}", "", f"`{command}`, {versions}.", "", *(_RULES if singles or triples else [])]
    if singles:
        lines += [*_table("kind", ((trial["kind"], trial) for _, trial in singles)), ""]
        lines += [*_table("graph", ((f"{_graph(task)}, {trial['phase']}", trial) for task, trial in singles)), ""]
    if triples:
        lines += [*_triples(triples), ""]
    lines += [*_clean(results), *_wrong([*singles, *triples])]
    lines += [
        *_without(results, "refused", "not compared, eager torch refuses"),
        *_without(results, "lost", "no result"),
    ]
    return "\n".join(lines) + "\n"


def is_reached(results: Results) -> bool:
    """Whether enough faults were blamed, there was no false alarm, and every task came to an end."""
    singles = [trial for _, trial in _trials(results, "faults") if _counts(trial)]
    triples = [trial for _, trial in _trials(results, "triples")]
    return (
        sum(_blamed(trial) for trial in singles) >= SINGLE * len(singles)
        and sum(trial["named"] for trial in triples) >= TRIPLE * len(triples)
        and not any(result.get("alarms") or "lost" in result for result in results.values())
    )


def _trials(results: Results, what: str) -> Iterator[tuple[Task, Trial]]:
    for task, result in results.items():
        if task[0] == what:
            yield from ((task, trial) for trial in result.get("trials", ()))


def _table(head: str, rows: Iterable[tuple[str, Trial]]) -> list[str]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for name, trial in rows:
        counts[name].update(_tally(trial))
        counts["**all**"].update(_tally(trial))
    lines = [
        f"| {head} | count | blamed | of them | first is right | no effect | too small | blamed still | discarded |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in [*(key for key in counts if key != "**all**"), "**all**"]:
        c = counts[name]
        share = f"{100 * c['blamed'] / c['count']:.1f} %" if c["count"] else ""
        cells = [c["count"], c["blamed"], share, c["first"], c["none"], c["small"], c["small blamed"], c["discarded"]]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return lines


def _tally(trial: Trial) -> Counter[str]:
    if trial.get("discarded"):
        return Counter(["discarded"])
    if trial["moved"] == 0:
        return Counter(["none"])
    if not _counts(trial):
        return Counter(["small", *(["small blamed"] if _blamed(trial) else [])])
    return Counter(["count", *(["blamed"] if _blamed(trial) else []), *(["first"] if trial["first"] else [])])


def _counts(trial: Trial) -> bool:
    return not trial.get("discarded") and trial["moved"] > CLEAR


def _blamed(trial: Trial) -> bool:
    return bool(trial["first"] and trial["alone"])


def _triples(triples: list[tuple[Task, Trial]]) -> list[str]:
    named, alone = (sum(trial[key] for _, trial in triples) for key in ("named", "alone"))
    share = f"{100 * named / len(triples):.1f} %"
    return [f"Three faults at once: {len(triples)}; all three named in {named} ({share}), and nothing else in {alone}."]


def _clean(results: Results) -> list[str]:
    clean = [(task, result) for task, result in results.items() if task[0] == "clean" and "checked" in result]
    if not clean:
        return []
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    sizes: dict[str, dict[str, None]] = defaultdict(dict)
    for task, result in clean:
        subject = _subject(task)
        size = f"{subject.batch} x {subject.seq}: {result['checked']}"
        name = " ".join((subject.model, subject.source, subject.attention, subject.precision, subject.backward))
        name = f"{name}, {subject.width}"
        sizes[name][size] = None
        tally = {"checked": result["checked"], "values": result["values"], "alarms": len(result["alarms"])}
        counts[name].update(tally)
        counts["**all**"].update(tally)
    lines = [
        "Nothing planted (sizes are batch x sequence: number of seeds, from 0):",
        "",
        "| graphs | sizes | comparisons | values | false alarms |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in [*(key for key in counts if key != "**all**"), "**all**"]:
        c = counts[name]
        cells = ["; ".join(sizes[name]), c["checked"], c["values"], c["alarms"]]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    alarms = [
        f"* {_subject(task)}, seed {alarm['seed']}: {alarm['reason']}"
        for task, result in clean
        for alarm in result["alarms"]
    ]
    return [*lines, "", *(["False alarms:", "", *alarms, ""] if alarms else [])]


def _wrong(trials: list[tuple[Task, Trial]]) -> list[str]:
    lines = []
    for task, trial in trials:
        if trial["kind"] == "three at once":
            if not trial["named"]:
                lines.append(f"* {_graph(task)}, {trial['phase']}: not named: {'; '.join(trial['missed'])}")
        elif _counts(trial) and not _blamed(trial):
            where = " ".join(trial["planted"])
            astray = [row["fx_node"] for row in trial["rows"] if row["status"] == "diverges"]
            named = f"named: {', '.join(astray)}" if astray else "nothing was named"
            lines.append(f"* {_graph(task)}, {trial['phase']}: {trial['what']} in {where}; {named}")
    return ["Not blamed, or not alone:", "", *lines, ""] if lines else []


def _without(results: Results, why: str, told: str) -> list[str]:
    return [f"* {told}: {_subject(task)}: {result[why]}" for task, result in results.items() if why in result]


def _graph(task: Task) -> str:
    subject = _subject(task)
    if subject.model not in PARTS:
        return f"{subject.model} {subject.precision}"
    return f"{subject.model} {subject.attention} {subject.precision} {subject.batch} x {subject.seq}"


def _subject(task: Task) -> Subject:
    return Subject(*json.loads(task[1]))
