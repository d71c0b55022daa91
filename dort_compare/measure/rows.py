"""One row a value: what it is, how far ONNX lies from torch, and whether that is more than noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx

from dort_compare.measure.floor import coarsest, noise_floor
from dort_compare.measure.local import local_error
from dort_compare.measure.metrics import Distance, Number, deviation, distance
from dort_compare.provenance import Phase, Provenance
from dort_compare.trace import Replay

Status = Literal["ok", "inherits", "diverges", "unaligned"]
_NO_VALUE = "no ONNX value stands for it"
TracedValue = tuple[fx.Node, torch.Tensor]


@dataclass(frozen=True)
class Candidate:
    """The ONNX side of a pair: a value with its name, the nodes that made it, and the dtype they computed in."""

    name: str
    tensor: torch.Tensor
    nodes: tuple[str, ...]
    op_types: tuple[str, ...]
    computed_in: str | None


@dataclass(frozen=True)
class Row:
    """A value of one graph, compared. Distances from float64 and the noise floor are in the unit of the values.

    ``reason`` says of an unaligned value why nothing was held against it.
    """

    phase: Phase
    graph: int
    fx_node: str
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
    computed_in: str | None = None
    inherited: Distance | None = None
    local: Distance | None = None
    noise_floor: float | None = None
    torch_vs_float64: Number | None = None
    onnx_vs_float64: Number | None = None

    def to_json(self) -> dict[str, Any]:
        """Strict JSON; ``local`` is null where torch could not run the op alone on ONNX's operands."""
        return {
            "phase": self.phase,
            "graph": self.graph,
            "fx_node": self.fx_node,
            "target": self.target,
            "onnx_value": self.onnx_value,
            "onnx_nodes": list(self.onnx_nodes),
            "dtype": self.dtype,
            "shape": list(self.shape),
            "module": self.module,
            "source": self.source,
            "computed_in": self.computed_in,
            "inherited": self.inherited.to_json() if self.inherited else None,
            "local": self.local.to_json() if self.local else None,
            "noise_floor": json_number(self.noise_floor),
            "torch_vs_float64": json_number(self.torch_vs_float64),
            "onnx_vs_float64": json_number(self.onnx_vs_float64),
            "status": self.status,
            "reason": self.reason,
        }


def json_number(number: Number | None) -> Number | str | None:
    """A number for strict JSON, which has no infinity."""
    return "inf" if number == math.inf else number


def measured_rows(
    phase: Phase,
    graph: int,
    reference: Iterable[TracedValue],
    referee: Iterable[TracedValue],
    candidates: Mapping[str, Candidate | str],
    inputs: Mapping[str, Any],
) -> Iterator[Row]:
    """Rows in the order of execution; ``reference`` and ``referee`` trace the same graph on ``inputs``, by name.

    ``candidates`` are by FX node; in the place of one that cannot be compared stands the reason.
    """
    tensors = {name: c.tensor for name, c in candidates.items() if isinstance(c, Candidate)}
    judge = _Judge(phase, graph, Replay({**inputs, **tensors}))
    for (node, expected), (_, exact) in zip(reference, referee, strict=True):
        yield judge.row(node, expected, exact, candidates.get(node.name, _NO_VALUE))


class _Judge:
    """Knows of every value of one graph so far how coarsely it was computed and whether it has diverged."""

    def __init__(self, phase: Phase, graph: int, replay: Replay) -> None:
        self.phase = phase
        self.graph = graph
        self.replay = replay
        self.precisions: dict[fx.Node, torch.dtype | None] = {}
        self.astray: set[fx.Node] = set()

    def row(self, node: fx.Node, expected: torch.Tensor, exact: torch.Tensor, candidate: Candidate | str) -> Row:
        precision = self._precision(node, expected.dtype)
        inherits = any(operand in self.astray for operand in _operands(node))
        if isinstance(candidate, str):
            self._mark(node, inherits)
            return self._row(node, expected, "unaligned", reason=candidate)
        inherited = distance(expected, candidate.tensor)
        torch_error = _from_float64(exact, expected)
        onnx_error = torch_error if inherited.equal else _from_float64(exact, candidate.tensor)
        floor = noise_floor(precision, inherited.scale or 0.0, torch_error, expected.numel())
        is_astray = not is_noise(inherited, floor, onnx_error)
        self._mark(node, is_astray)
        local = local_error(self.replay, node, candidate.tensor)
        if local is not None:
            status: Status = "diverges" if not local.is_noise else "inherits" if is_astray else "ok"
        else:
            status = "ok" if not is_astray else "inherits" if inherits else "diverges"
        return self._row(
            node,
            expected,
            status,
            onnx_value=candidate.name,
            onnx_nodes=candidate.nodes,
            op_types=candidate.op_types,
            computed_in=candidate.computed_in,
            inherited=inherited,
            local=local.distance if local else None,
            noise_floor=local.noise_floor if local else floor,
            torch_vs_float64=torch_error,
            onnx_vs_float64=onnx_error,
        )

    def _precision(self, node: fx.Node, dtype: torch.dtype) -> torch.dtype | None:
        own = coarsest([dtype])
        before = [p for operand in _operands(node) if (p := self.precisions.get(operand, _traced(operand)))]
        self.precisions[node] = own and coarsest([own, *before])
        return self.precisions[node]

    def _mark(self, node: fx.Node, is_astray: bool) -> None:
        if is_astray:
            self.astray.add(node)

    def _row(self, node: fx.Node, expected: torch.Tensor, status: Status, **measured: Any) -> Row:
        origin = Provenance.of(node, self.phase)
        return Row(
            phase=self.phase,
            graph=self.graph,
            fx_node=node.name,
            target=origin.aten_target,
            module=origin.module,
            source=origin.source,
            dtype=str(expected.dtype).removeprefix("torch."),
            shape=tuple(expected.shape),
            status=status,
            **measured,
        )


def is_noise(inherited: Distance, floor: float, onnx_error: Number | None = None) -> bool:
    """Whether ONNX's distance from float64, or without one that from torch, is within the floor and no finding."""
    if inherited.equal:
        return True
    if inherited.finding is not None or inherited.max_abs is None:
        return False
    return (inherited.max_abs if onnx_error is None else onnx_error) <= floor


def _from_float64(exact: torch.Tensor, value: torch.Tensor) -> Number | None:
    return deviation(exact, value) if exact.dtype == torch.float64 and value.is_floating_point() else None


def _operands(node: fx.Node) -> list[fx.Node]:
    """The nodes whose values a node reads; ``getitem`` reads what the op it belongs to reads."""
    operands = []
    for operand in node.all_input_nodes:
        is_tuple = isinstance(operand.meta.get("val"), (tuple, list))
        operands.extend(operand.all_input_nodes if is_tuple else [operand])
    return operands


def _traced(node: fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return coarsest([value.dtype]) if isinstance(value, torch.Tensor) else None
