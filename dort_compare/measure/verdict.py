"""Agree or diverge, and where first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dort_compare.measure.outcome import OutcomeRow
from dort_compare.measure.rows import Row

Judgement = Literal["agree", "diverge"]


@dataclass(frozen=True)
class Divergence:
    """The first value, in order of execution, that departs, and why it is held to depart."""

    phase: str
    fx_node: str
    target: str
    onnx_value: str | None
    onnx_nodes: tuple[str, ...]
    module: str
    source: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "onnx_nodes": list(self.onnx_nodes)}


def judge(rows: Sequence[Row], outcome: Sequence[OutcomeRow]) -> tuple[Judgement, Divergence | None]:
    """The verdict over all values of all graphs and over the outputs and gradients of the whole model.

    A comparison in which nothing was compared diverges: silence proves nothing. Equal outputs do not speak for graphs
    of which no value was compared.
    """
    astray = next((row for row in rows if row.status == "diverges"), None)
    if astray is not None:
        return "diverge", _at_row(astray)
    wrong = next((row for row in outcome if not row.ok), None)
    if wrong is not None:
        return "diverge", _outside(f"{wrong.kind} {wrong.name}", _outcome_reason(wrong))
    if not any(row.inherited for row in rows) if rows else not any(row.distance for row in outcome):
        return "diverge", _outside("", "nothing was compared")
    return "agree", None


def _at_row(row: Row) -> Divergence:
    return Divergence(
        row.phase,
        row.fx_node,
        row.target,
        row.onnx_value,
        row.onnx_nodes,
        row.module,
        row.source,
        _row_reason(row),
    )


def _row_reason(row: Row) -> str:
    found = row.local or row.inherited
    assert found is not None
    if found.finding:
        return found.finding
    where = " on the same operands" if row.local else ""
    reason = f"max |torch - onnx| = {found.max_abs:.3g}{where} where {row.noise_floor:.3g} is noise"
    if row.torch_vs_float64 is None or row.onnx_vs_float64 is None:
        return reason
    further = "ONNX" if row.onnx_vs_float64 > row.torch_vs_float64 else "torch"
    return f"{reason}; {further} is further from float64 ({row.onnx_vs_float64:.3g} against {row.torch_vs_float64:.3g})"


def _outcome_reason(row: OutcomeRow) -> str:
    if row.distance is None:
        return "only one side has it"
    if row.distance.finding:
        return row.distance.finding
    return (
        f"max |eager - compiled| = {row.distance.max_abs:.3g} where {row.noise_floor:.3g} is noise, "
        "although no op of the compiled graphs departs by itself: it enters in tracing, before ONNX, or where the "
        "program that ran differs from the one whose values were exposed"
    )


def _outside(what: str, reason: str) -> Divergence:
    return Divergence("eager", what, "", None, (), "", "", reason)
