"""What of torch reaches ONNX Runtime: torch's operator database, core ATen, and the model families.

``python benchmarks/coverage.py`` prints the tables; with ``--write`` they go to docs/coverage.md, and what
``python -m dort_compare.lowering`` shows is renewed.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core_coverage import measure_overload
from coverage_page import page, tested
from model_coverage import family_names, measure_family
from op_coverage import entries_called, entry_names, measure_entry
from pages import command
from workers import Result, Task, run_tasks, serve

from dort_compare.lowering.table import core_overloads

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "coverage.md"
TESTED = ROOT / "dort_compare" / "lowering" / "tested.json"
SECONDS = 3600.0
"""How long one task may take."""


def measure(task: Task) -> Result:
    """What a worker does with a task."""
    kind, name, *rest = task
    measures: dict[str, Callable[[], Result]] = {
        "entry": lambda: measure_entry(name, int(rest[0])),
        "overload": lambda: measure_overload(name, rest),
        "family": lambda: measure_family(name),
    }
    return measures[kind]()


def measured(tasks: Sequence[Task], jobs: int, journal: Path | None) -> list[Result]:
    """The results in the order of the tasks."""
    results = dict(run_tasks([sys.executable, __file__, "--serve"], tasks, jobs, SECONDS, journal))
    return [{"name": task[1], **results[task]} for task in tasks]


def overload_tasks(entries: Sequence[Result]) -> list[Task]:
    """Core ATen, and the backward overloads that the entries' gradients dispatched, each with the entries to ask."""
    reached = defaultdict(list)
    for entry in entries:
        for op in entry.get("ops", ()):
            reached[op].append(entry["name"])
    emitted = {op for op in reached if op.startswith("aten.") and "_backward" in op}
    named = {op: [*entries_called(op.split(".")[1]), *reached[op]] for op in {*core_overloads(), *emitted}}
    return [("overload", op, *list(dict.fromkeys(names))[:8]) for op, names in sorted(named.items())]


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only what contains this text in its name")
    parser.add_argument("--samples", type=int, default=0, help="samples an entry of op_db; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="processes; default: 2")
    parser.add_argument("--parts", nargs="+", default=["ops", "core", "models"], help="ops, core, models")
    parser.add_argument("--write", action="store_true", help="write the files of the repository, not to the screen")
    parser.add_argument("--journal", type=Path, help="a file of results: goes on where a run of the same code stopped")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write and (arguments.only or len(arguments.parts) < 3):
        parser.error("--write renews the whole table: leave out --only and --parts")
    return arguments


def main() -> None:
    """Measures what is asked for and shows it; exit status 1 where a value is wrong."""
    arguments = parsed()
    if arguments.serve:
        warnings.filterwarnings("ignore")
        logging.disable(logging.CRITICAL)
        serve(measure)
        return
    parts, only = arguments.parts, arguments.only
    names = entry_names("" if "core" in parts and "ops" not in parts else only) if parts != ["models"] else []
    samples = str(arguments.samples if "ops" in parts else 1)
    entries = measured([("entry", name, samples) for name in names], arguments.jobs, arguments.journal)
    tasks = [task for task in overload_tasks(entries) if only in task[1]] if "core" in parts else []
    overloads = measured(tasks, arguments.jobs, arguments.journal)
    families = [name for name in family_names() if only in name] if "models" in parts else []
    models = measured([("family", name) for name in families], arguments.jobs, arguments.journal)
    text = page(command(), entries if "ops" in parts else [], overloads, models)
    if arguments.write:
        PAGE.write_text(text)
        TESTED.write_text(json.dumps(tested(overloads), indent=1) + "\n")
    else:
        print(text)
    sys.exit(1 if any(is_wrong(result) for result in [*entries, *models]) else 0)


def is_wrong(result: dict[str, Any]) -> bool:
    """Whether a value was wrong, an error was raised or a worker was lost."""
    return bool(result.get("forward") or result.get("gradient") or result.get("lost")) or (
        result.get("verdict", "agree") != "agree"
    )


if __name__ == "__main__":
    main()
