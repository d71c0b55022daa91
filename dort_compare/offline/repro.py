"""``dort-compare repro``: one FX node of a dump, to show to others."""

from __future__ import annotations

from pathlib import Path

from dort_compare.dump.reader import Device
from dort_compare.errors import UsageError, nearest
from dort_compare.offline.runs import dumped_runs, names_of, running
from dort_compare.repro import case_of, write_case


def repro(
    dump: str | Path, node: str, folder: str | Path, graph: str | int | None = None, *, provider: Device = "cpu"
) -> bool:
    """Writes a folder that shows what ONNX Runtime makes of one FX node of a dump, and what torch does.

    It holds the ONNX nodes of that one FX node, torch's values of its operands and results, and a script that needs
    only onnxruntime and numpy. ``graph`` has to be given where several graphs have a node of that name. Returns whether
    one of the results departs.

    Raises DumpError for a dump that cannot be read, or a folder that is not empty; UsageError for a wrong call.
    """
    graphs, runs = zip(*dumped_runs(dump, graph, provider), strict=True)
    calls = [{n.name for n in run.graph_module.graph.nodes if n.op == "call_function"} for run in runs]
    having = [run for run, names in zip(runs, calls, strict=True) if node in names]
    if not having:
        close = nearest(node, sorted(set().union(*calls)))
        raise UsageError(f"no call {node!r} in {names_of(graphs)} of {dump}{close}; check names those that differ")
    if len(having) > 1:
        numbers = ", ".join(str(run.index) for run in having)
        raise UsageError(f"graphs {numbers} have a node {node}; choose one with --graph")
    (run,) = having
    with running(f"node {node} of graph {run.index} of {dump}"):
        case = case_of(run, node)
    write_case(case, Path(folder))
    return case.departs
