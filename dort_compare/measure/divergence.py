"""A value that departs, where it stands and why it is held to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from dort_compare.measure.distance.distances import Distance, Number
from dort_compare.measure.reach import Lineage, Reach
from dort_compare.measure.rows import Row, json_number

Judgement = Literal["agree", "diverge"]


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """A value that departs by itself, or makes more than noise of noise, and why it is held to.

    Distances are in the unit of the values.

    Attributes:
        phase: of its graph, or "eager" for what departs before ONNX.
        fx_node: the call that computes it, or the calls, in order, that depart together; the name of an output or
            gradient where no call is the cause.
        target: the ATen overload that is called.
        onnx_value: the ONNX value that stands for it; None if none does.
        onnx_nodes: the ONNX nodes that compute it.
        module: path of the module, "" outside of all.
        source: file:line of the caller's code, "" where that is not known.
        reason: in words.
        inherited: the distance where each side has its own earlier values.
        local: the distance where ONNX has torch's operands.
        noise_floor: the largest local error that is noise.
        torch_vs_float64: the largest distance of torch's elements from float64's, on the same operands where that was
            measured.
        onnx_vs_float64: the same of ONNX's.
        reach: what it reaches: later values, outputs and gradients.
        graph: the number of its graph.
        run: which run of the graph, from 1.
        operands: the values of the graph that the call reads.
    """

    phase: str
    fx_node: str
    target: str = ""
    onnx_value: str | None = None
    onnx_nodes: tuple[str, ...] = ()
    module: str = ""
    source: str = ""
    reason: str
    inherited: Distance | None = None
    local: Distance | None = None
    noise_floor: float | None = None
    torch_vs_float64: Number | None = None
    onnx_vs_float64: Number | None = None
    reach: Reach | None = None
    graph: int | None = None
    run: int = 1
    operands: tuple[str, ...] = ()

    @property
    def further(self) -> Literal["ONNX", "torch"] | None:
        """Which side is further from float64; None where that is not known, as of NaN or inf that stand on one side,
        unless float64 has the same on the other."""
        if self.torch_vs_float64 is None or self.onnx_vs_float64 is None:
            return None
        is_settled = (self.torch_vs_float64 == math.inf) != (self.onnx_vs_float64 == math.inf)
        if not is_settled and any(found is not None and found.finding for found in (self.local, self.inherited)):
            return None
        return "ONNX" if self.onnx_vs_float64 > self.torch_vs_float64 else "torch"

    def to_json(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "fx_node": self.fx_node,
            "target": self.target,
            "onnx_value": self.onnx_value,
            "onnx_nodes": list(self.onnx_nodes),
            "module": self.module,
            "source": self.source,
            "reason": self.reason,
            "inherited": self.inherited.to_json() if self.inherited else None,
            "local": self.local.to_json() if self.local else None,
            "noise_floor": json_number(self.noise_floor),
            "torch_vs_float64": json_number(self.torch_vs_float64),
            "onnx_vs_float64": json_number(self.onnx_vs_float64),
            "further_from_float64": self.further,
            "reaches": self.reach.to_json() if self.reach else None,
            "graph": self.graph,
            "run": self.run,
            "operands": list(self.operands),
        }


def at_row(row: Row, lineage: Lineage | None) -> Divergence:
    """The cause that a row is which diverges."""
    measured = row.local is not None and row.local_torch_vs_float64 is not None
    divergence = Divergence(
        phase=row.phase,
        fx_node=row.call,
        target=row.target,
        onnx_value=row.onnx_value,
        onnx_nodes=row.onnx_nodes,
        module=row.module,
        source=row.source,
        reason="",
        inherited=row.inherited,
        local=row.local,
        noise_floor=row.noise_floor,
        torch_vs_float64=row.local_torch_vs_float64 if measured else row.torch_vs_float64,
        onnx_vs_float64=row.local_onnx_vs_float64 if measured else row.onnx_vs_float64,
        reach=lineage.reached(row.graph, row.call, run=row.run) if lineage else None,
        graph=row.graph,
        run=row.run,
        operands=lineage.operands(row.graph, row.call) if lineage else (),
    )
    return replace(divergence, reason=in_run(row.run) + _reason(divergence, row))


def in_run(number: int) -> str:
    """What stands before what is told of a later run of a graph: "in run 3 of its graph: "."""
    return f"in run {number} of its graph: " if number > 1 else ""


def outside(what: str, reason: str) -> Divergence:
    """A cause that is no value of a graph: an output, gradient or update, or "" where nothing was compared."""
    return Divergence(phase="eager", fx_node=what, reason=reason)


def float64_has(errors: Mapping[str, Number | None]) -> str:
    """Which of two sides, of which by name the distances from float64 are given, has NaN and infinities where that has
    them: "; float64 has what eager has". Nothing where both do or neither, or that is not known."""
    right = [name for name, error in errors.items() if error != math.inf]
    is_known = None not in errors.values()
    return f"; float64 has what {right[0]} has" if is_known and len(right) == 1 else ""


def _reason(divergence: Divergence, row: Row) -> str:
    if row.reason:
        return row.reason
    found = row.local or row.inherited
    assert found is not None
    if found.finding:
        right = {"ONNX": "torch", "torch": "ONNX"}.get(divergence.further or "")
        return found.finding + (f"; float64 has what {right} has" if right else "")
    where = " on the same operands" if row.local else ""
    reason = f"{found.told('torch', 'onnx')}{where} where {row.noise_floor:.3g} is noise"
    if divergence.further is None:
        return reason
    errors = f"{divergence.onnx_vs_float64:.3g} against {divergence.torch_vs_float64:.3g}"
    if divergence.further == "torch":
        errors = f"{divergence.torch_vs_float64:.3g} against {divergence.onnx_vs_float64:.3g}"
    return f"{reason}; {divergence.further} is further from float64 ({errors})"
