"""Asks the verdict about graphs that nothing is wrong with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from fault_subjects import Subject, call_and_model
from fault_trials import told

from dort_compare import DebugBackend
from dort_compare.comparison import compare_with
from dort_compare.errors import one_line
from dort_compare.measure.graph_rows import graph_rows
from dort_compare.measure.verdict import judge
from dort_compare.trace import GraphRun
from dort_compare.trace.call import Call
from dort_compare.trace.modules import run_module


def measure_clean(subject: Subject, seeds: Sequence[int]) -> dict[str, Any]:
    """``checked``: comparisons made, one a seed, of ``values`` values; ``alarms``: what was said against any of them.
    Or ``refused``: why plain eager torch does not run the subject.

    The model is compiled once and gets the weights and inputs of each seed, one judged before the next is given, as
    backward graphs keep views of the weights; outputs and gradients of the whole model are judged for the first.
    """
    call, model = call_and_model(replace(subject, seed=str(seeds[0])))
    if (reason := _refused(model, call)) is not None:
        return {"refused": reason}
    backend = DebugBackend(fallback=False, max_runs=len(seeds))
    report = compare_with(model, call, backend).report
    compiled = torch.compile(model, backend=backend)
    values = 0
    alarms = [{"seed": seeds[0], "reason": _reason(report.first_divergence)}] if report.verdict != "agree" else []
    for position, seed in enumerate(seeds):
        if position:
            call, other = call_and_model(replace(subject, seed=str(seed)))
            model.load_state_dict(other.state_dict())
            run_module(compiled, dict(model.named_parameters()), call)
        rows = [row for graph in backend.graphs for row in graph_rows(_run(graph, position))]
        values += sum(row.status != "unaligned" for row in rows)
        verdict, causes = judge(rows, [])
        if verdict != "agree":
            astray = [told(row) for row in rows if row.status == "diverges"]
            alarms.append({"seed": seed, "reason": _reason(causes[0]), "rows": astray})
    return {"checked": len(seeds), "values": values, "alarms": alarms}


def _refused(model: torch.nn.Module, call: Call) -> str | None:
    try:
        run_module(model, dict(model.named_parameters()), call)
    except RuntimeError as problem:
        return one_line(problem)
    return None


def _run(graph: Any, position: int) -> GraphRun:
    inputs, providers = graph.named_inputs(position), graph.program.providers
    return GraphRun(graph.phase, graph.index, graph.graph_module, graph.onnx_model, inputs, providers)


def _reason(divergence: Any) -> str:
    return f"{divergence.phase} {divergence.fx_node}: {divergence.reason}"
