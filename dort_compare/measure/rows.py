"""One row a value: what it is, how far ONNX lies from torch, and whether that is more than noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from dort_compare.measure.distance.distances import Distance, Number
from dort_compare.measure.picture import Picture
from dort_compare.provenance import Phase

Status = Literal["ok", "inherits", "diverges", "unaligned"]
SEVERITY = MappingProxyType({"ok": 0, "inherits": 1, "diverges": 2})
"""How bad a status is; one that is not compared has no rank."""


@dataclass(frozen=True)
class Row:
    """A value of one graph, compared. Distances from float64 and the noise floor are in the unit of the values.

    Attributes:
        phase: "inference", "forward" or "backward".
        graph: the number of the graph, in the order compiled.
        fx_node: the node whose value it is.
        call: the node that computes it, another one where an op has several results.
        target: the ATen overload that is called.
        module: path of the module, "" outside of all.
        source: file:line of the caller's code, "" where that is not known.
        dtype: of torch's value.
        shape: of torch's value.
        status: "ok"; "inherits", where it lies more than noise off by what it reads; "diverges", by what its op adds;
            or "unaligned".
        reason: why nothing was held against an unaligned value (one that has an ``onnx_value`` all the same is none of
            torch's numbers), or what numbers do not say of a diverging one.
        onnx_value: the ONNX value that stands for it; None if none does.
        onnx_nodes: the ONNX nodes that compute it.
        op_types: of these, their operators.
        fused: the FX nodes that these take the place of, where they are several.
        operands: the FX nodes that it reads, inputs of the graph among them.
        code: what stands in the ``source`` line, "" where that is not known.
        computed_in: the wider dtype that the ONNX nodes compute in, where they do.
        held_in: the coarser dtype that a converted model holds it in, where it does.
        is_unstable: whether ONNX Runtime computes other values of the same operands from run to run.
        run: which run of the graph, from 1.
        inherited: the distance where each side has its own earlier values.
        local: the distance where ONNX has torch's operands; None where its nodes cannot run on those alone.
        noise_floor: the largest local error that is noise.
        torch_vs_float64: the largest distance of torch's elements from float64's.
        onnx_vs_float64: the same of ONNX's, which have their own earlier values.
        local_torch_vs_float64: the same of torch's, where float64 has torch's operands too; measured where the two
            sides lie more than a few roundings apart.
        local_onnx_vs_float64: the same of ONNX's on torch's operands.
        picture: what the elements look like, of some of those that depart or err most.
    """

    phase: Phase
    graph: int
    fx_node: str
    call: str
    target: str
    module: str
    source: str
    dtype: str
    shape: tuple[int, ...]
    status: Status
    reason: str | None = None
    onnx_value: str | None = None
    onnx_nodes: tuple[str, ...] = ()
    op_types: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    code: str = ""
    computed_in: str | None = None
    held_in: str | None = None
    is_unstable: bool = False
    run: int = 1
    inherited: Distance | None = None
    local: Distance | None = None
    noise_floor: float | None = None
    torch_vs_float64: Number | None = None
    onnx_vs_float64: Number | None = None
    local_torch_vs_float64: Number | None = None
    local_onnx_vs_float64: Number | None = None
    picture: Picture | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON; ``local`` is null where ONNX Runtime could not run the op alone on torch's operands."""
        return {
            "phase": self.phase,
            "graph": self.graph,
            "run": self.run,
            "fx_node": self.fx_node,
            "call": self.call,
            "target": self.target,
            "onnx_value": self.onnx_value,
            "onnx_nodes": list(self.onnx_nodes),
            "op_types": list(self.op_types),
            "fused": list(self.fused),
            "dtype": self.dtype,
            "shape": list(self.shape),
            "module": self.module,
            "source": self.source,
            "code": self.code,
            "operands": list(self.operands),
            "computed_in": self.computed_in,
            "held_in": self.held_in,
            "inherited": self.inherited.to_json() if self.inherited else None,
            "local": self.local.to_json() if self.local else None,
            "noise_floor": json_number(self.noise_floor),
            "torch_vs_float64": json_number(self.torch_vs_float64),
            "onnx_vs_float64": json_number(self.onnx_vs_float64),
            "local_torch_vs_float64": json_number(self.local_torch_vs_float64),
            "local_onnx_vs_float64": json_number(self.local_onnx_vs_float64),
            "status": self.status,
            "reason": self.reason,
            "picture": self.picture.to_json() if self.picture else None,
        }


def json_number(number: Number | None) -> Number | str | None:
    """A number for strict JSON, which has no infinity."""
    return "inf" if number == math.inf else number
