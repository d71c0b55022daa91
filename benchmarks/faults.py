"""Plants faults into lowered models and asks the verdict which op is wrong; asks it about clean models too.

A fault counts where it moves the result of its op by more than four noise floors, on the reference's operands. Blamed
is a fault whose FX node alone is reported to diverge, and first. See docs/faults.md for what came out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import torch
from fault_clean import measure_clean
from fault_kinds import KINDS
from fault_subjects import AUTOCAST, Subject, graph_runs
from fault_trials import Bench
from faults_page import is_reached, page
from pages import command
from workers import Result, Task, run_tasks, serve

from dort_compare.models import PARTS, SOURCES
from dort_compare.models.families import FAMILIES
from dort_compare.models.llama import ATTENTIONS

SECONDS = 3600
_BENCHES: dict[Subject, list[Bench]] = {}


def measure(task: Task) -> Result:
    """One task: ("faults", subject, kind, most), ("triples", subject, count) or ("clean", subject, seeds)."""
    what, fields, *rest = task
    subject = Subject(*json.loads(fields))
    if what == "clean":
        return measure_clean(subject, [int(seed) for seed in rest[0].split(",")])
    if subject not in _BENCHES:
        _BENCHES.clear()
        _BENCHES[subject] = [Bench(run) for run in graph_runs(subject)]
    benches = _BENCHES[subject]
    if what == "triples":
        return {"trials": [trial for b in benches for trial in b.triples(list(KINDS), int(rest[0]))]}
    return {"trials": [trial for b in benches for trial in b.trials(rest[0], int(rest[1]))]}


def fault_tasks(options: argparse.Namespace) -> Iterator[Task]:
    """Every kind of fault in every subject, forward and backward and for inference, and three at once."""
    directions = ("backward", "inference")
    chosen = itertools.product(options.parts, ATTENTIONS, options.precisions, directions)
    for name, attention, precision, direction in chosen:
        for size in options.fault_sizes:
            if name in FAMILIES and (attention, size) != (ATTENTIONS[0], options.fault_sizes[0]):
                continue
            subject = json.dumps(astuple(_subject(name, SOURCES[0], attention, precision, direction, size, "narrow")))
            for kind in options.kinds:
                yield "faults", subject, kind, str(options.per_kind)
            yield "triples", subject, str(options.triples)


def clean_tasks(options: argparse.Namespace) -> Iterator[Task]:
    """Every part, source, attention, precision, direction and size; large sizes with fewer seeds."""
    directions = ("backward", "inference")
    chosen = itertools.product(options.sizes, options.parts, SOURCES, ATTENTIONS, options.precisions, directions)
    for size, name, source, attention, precision, direction in chosen:
        if name in FAMILIES and (source, attention, size) != (SOURCES[0], ATTENTIONS[0], options.sizes[0]):
            continue
        for width in options.widths:
            subject = _subject(name, source, attention, precision, direction, size, width)
            yield "clean", json.dumps(astuple(subject)), ",".join(map(str, _seeds(options.seeds, subject)))


def _subject(name: str, source: str, attention: str, precision: str, direction: str, size: str, width: str) -> Subject:
    batch, seq = size.split("x")
    return Subject(name, source, attention, precision, direction, batch, seq, width)


def _seeds(count: int, subject: Subject) -> range:
    """All seeds up to 64 tokens in narrow layers; ever fewer where a run takes longer."""
    cost = int(subject.batch) * int(subject.seq) * (16 if subject.width == "wide" else 1)
    return range(max(1, min(count, count * 64 // cost)))


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """What is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*PARTS, *FAMILIES]
    parser.add_argument(
        "--parts", nargs="+", choices=names, default=PARTS, metavar="NAME", help="of Llama, or families"
    )
    parser.add_argument("--precisions", nargs="+", choices=AUTOCAST, default=list(AUTOCAST))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--per-kind", type=int, default=12, help="faults of a kind and graph that count; 0 for all")
    parser.add_argument("--triples", type=int, default=20, help="three faults at once, so often for each graph")
    parser.add_argument("--fault-sizes", nargs="+", default=["2x8"], metavar="BATCHxSEQ")
    sizes = ["1x1", "2x1", "1x7", "2x16", "3x64", "2x256", "2x1024"]
    parser.add_argument("--sizes", nargs="+", default=sizes, metavar="BATCHxSEQ", help="of clean graphs")
    parser.add_argument("--widths", nargs="+", choices=("narrow", "wide"), default=["narrow"], help="of clean graphs")
    parser.add_argument("--seeds", type=int, default=20, help="of clean graphs, from 0; fewer for large sizes")
    parser.add_argument("--only-clean", action="store_true")
    parser.add_argument("--only-faults", action="store_true")
    parser.add_argument("--journal", type=Path, help="file from which an interrupted run goes on")
    parser.add_argument("--write", type=Path, help="file for the page, beside the screen")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main() -> None:
    """Measures, prints the page, and exits with 1 where the goal is missed."""
    options = arguments()
    if options.worker:
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        torch.set_num_threads(1)  # small tensors: threads that wait for one another cost ten times the work
        serve(measure)
        return
    tasks = [] if options.only_clean else list(fault_tasks(options))
    tasks += [] if options.only_faults else list(clean_tasks(options))
    worker = [sys.executable, __file__, "--worker"]
    found = dict(run_tasks(worker, tasks, options.jobs, SECONDS, options.journal))
    results = {task: found[task] for task in tasks}
    text = page(results, command())
    print(text)
    if options.write:
        options.write.write_text(text)
    sys.exit(0 if is_reached(results) else 1)


if __name__ == "__main__":
    main()
