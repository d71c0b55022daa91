"""``dort-compare check``: the verdict on a dump alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dort_compare.align.named_alike import named_alike, without_names
from dort_compare.align.regions import values_by_region
from dort_compare.backends.fallback import Fallback
from dort_compare.backends.recorded_runs import ComparedGraph
from dort_compare.comparison import Effort
from dort_compare.dump.reader import Device, fallbacks_in
from dort_compare.errors import DumpError
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.measure.pictures import Pictures
from dort_compare.measure.reach import Lineage
from dort_compare.measure.rows import Row
from dort_compare.measure.verdict import judge
from dort_compare.offline.misnamed import Contents, misnamed
from dort_compare.offline.runs import dumped_runs, refuse_unloadable, running, title
from dort_compare.plain import printable
from dort_compare.report import Report
from dort_compare.report.environment import environment
from dort_compare.report.progress import Waiting
from dort_compare.trace import GraphRun
from dort_compare.trace.four_executions import MEMORY
from dort_compare.trace.graph_run import EngineName, check_engine


def check(
    dump: str | Path,
    graph: str | int | None = None,
    *,
    model: str | Path | None = None,
    engine: EngineName = "ort",
    provider: Device = "cpu",
    memory: int = MEMORY,
    repeats: int = 1,
) -> Report:
    """Compares the graphs of a dump with eager torch, on the inputs of the run that the dump was made of.

    ``graph`` names one graph by its number or name; without it, all that have run are compared, in the order in which
    they did. ``model`` is an ONNX file in the place of that graph's model. ``engine`` is what runs the models: "ort",
    or "reference" for the ONNX reference evaluator. ``provider`` is "cpu" or "cuda", ``memory`` (in MiB) and
    ``repeats`` are those of ``compare``.

    Raises DumpError for a dump or model that cannot be read or run, UsageError for a wrong call.
    """
    effort = Effort(memory, repeats)
    check_engine(engine)
    runs = [(each, replace(run, engine=engine)) for each, run in dumped_runs(dump, graph, provider, model)]
    fallbacks = _fallbacks(Path(dump)) if graph is None else ()
    other = Path(model) if model is not None else None
    for each, run in runs:
        refuse_unloadable(run, other or each.file("onnx"))
    rows: list[Row] = []
    for each, run in runs:
        is_behind = any(row.status == "diverges" for row in rows)
        with running(title(each, other)), Waiting() as waiting:
            rows += _rows(run, each.name, effort, waiting, is_ours=other is None, is_behind=is_behind)
    identities = tuple(ComparedGraph(each.number, each.phase, each.compile_id) for each, _ in runs)
    settings = {"dump": str(dump), "model": other and str(other), "engine": engine, "provider": provider}
    verdict, causes = judge(rows, (), Lineage([run for _, run in runs]))
    return Report(
        verdict=verdict,
        causes=causes,
        rows=tuple(rows),
        outputs=(),
        fallbacks=fallbacks,
        graphs=identities,
        settings={**settings, "memory": memory, "repeats": repeats},
        environment=environment(),
    )


def _fallbacks(dump: Path) -> tuple[Fallback, ...]:
    """What ran in eager torch beside the graphs of a dump. Raises DumpError where it says something else."""
    texts = ("fx_node", "target", "source", "reason")
    try:
        return tuple(Fallback(each["phase"], *(printable(each[key]) for key in texts)) for each in fallbacks_in(dump))
    except KeyError as problem:
        raise DumpError(f"{dump} is damaged: a fallback of its manifest lacks {problem}") from None


def _rows(run: GraphRun, name: str, effort: Effort, waiting: Waiting, *, is_ours: bool, is_behind: bool) -> list[Row]:
    """The rows of one graph, with pictures. A model that is not ours may have one node for several of its calls, and
    names for other values that are ours: once that shows, they tell nothing."""
    while True:
        pictures, contents = Pictures(), Contents(frozenset() if is_ours else named_alike(run.onnx_model))
        stands = None if is_ours else values_by_region(run.graph_module, run.onnx_model)
        passing = graph_rows(
            run,
            stands=stands,
            may_be_converted=not is_ours,
            memory=effort.memory,
            repeats=effort.repeats,
            watches=(pictures.see, contents.see),
            is_behind=is_behind,
        )
        found = pictures.on(waiting.each(f"values of {name}", passing, run.calls))
        others = misnamed(run, found, contents)
        if not others:
            return found
        run = replace(run, onnx_model=without_names(run.onnx_model, others))
