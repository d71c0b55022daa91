"""The optimized model: what ONNX Runtime's optimizers made of a graph's model, value by value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from dort_compare.align.optimized import align_optimized
from dort_compare.measure.graph_rows import Watch, graph_rows
from dort_compare.measure.rows import Row
from dort_compare.rewrites import rewritten
from dort_compare.runtime.providers import SessionSettings
from dort_compare.trace import GraphRun
from dort_compare.trace.as_it_is import AS_IT_IS
from dort_compare.trace.onnx import optimized as optimized_model


@dataclass(frozen=True)
class Optimized:
    """A row for every value that survived the optimizers, and how many did not: a fusion went over them.

    ``unoptimized`` holds, where one of the rows diverges that does not in the lowered model, those that diverge with
    all optimizers off too.
    """

    rows: tuple[Row, ...]
    fused_away: int
    unoptimized: tuple[Row, ...] = ()

    def __add__(self, other: Optimized) -> Optimized:
        return Optimized(
            self.rows + other.rows, self.fused_away + other.fused_away, self.unoptimized + other.unoptimized
        )

    def to_json(self) -> dict[str, Any]:
        return {"rows": [row.to_json() for row in self.rows], "fused_away": self.fused_away}


def _rows_under(
    run: GraphRun,
    settings: SessionSettings,
    *,
    rewrites: bool = False,
    memory: int,
    watches: Sequence[Watch] = (),
) -> Optimized:
    """The rows of ``run`` with the model that ONNX Runtime, under ``settings``, makes of that of the run.

    With ``rewrites`` those of ``dort_compare.rewrites`` come first.

    Nodes that were fused run on torch's values of what they read, and are held against the chain of FX nodes that they
    took the place of, which may round in between or not. Raises ExecutionError where ONNX Runtime cannot.
    """
    model = run.onnx_model
    if rewrites:
        model = ir.to_proto(rewritten(ir.from_proto(model), run.providers))
    aligned = align_optimized(run.onnx_model, optimized_model(model, settings, run.providers))
    rows = graph_rows(replace(run, onnx_model=aligned.model), stands=aligned.values, memory=memory, watches=watches)
    return Optimized(tuple(row for row in rows if row.onnx_value is not None), len(aligned.fused_away))


def optimized_rows(
    run: GraphRun,
    lowered: Iterable[Row],
    settings: SessionSettings,
    *,
    rewrites: bool,
    memory: int,
    watches: Sequence[Watch],
) -> Optimized:
    """The rows of the optimized model of ``run``, and those with the optimizers off where one departs that is right
    among the ``lowered``.

    ONNX Runtime changes a model for kernels that it lacks even then: a rounding may go that way.
    """
    found = _rows_under(run, settings, rewrites=rewrites, memory=memory, watches=watches)
    if not astray(lowered, found.rows):
        return found
    without = _rows_under(run, AS_IT_IS, memory=memory)
    return replace(found, unoptimized=tuple(row for row in without.rows if row.status == "diverges"))


def astray(rows: Iterable[Row], optimized: Iterable[Row]) -> list[Row]:
    """The first of the ``optimized`` rows of each call that diverges, where nothing it was made for does in
    ``rows``."""
    departing = {(row.graph, name) for row in rows if row.status == "diverges" for name in (row.call, row.fx_node)}
    found: dict[tuple[int, str], Row] = {}
    for row in optimized:
        if row.status == "diverges" and not any((row.graph, name) in departing for name in made_for(row)):
            found.setdefault((row.graph, row.call), row)
    return list(found.values())


def made_for(row: Row) -> tuple[str, ...]:
    """The FX nodes that the ONNX nodes of ``row`` stand for: its own, its call, and those that were fused with it."""
    return (row.call, row.fx_node, *row.fused)
