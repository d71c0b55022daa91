"""How half-precision values use their dtype, and where dtypes change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from dort_compare.dtypes import dtype_name, is_floating_tensor, is_half_tensor
from dort_compare.measure.graph_rows import Watch
from dort_compare.measure.half.place import NodePlace
from dort_compare.measure.half.use import Use, use_of
from dort_compare.measure.rows import json_number
from dort_compare.trace import GraphRun, Step

Finding = Literal["overflows", "near the range", "underflows", "holds no digit"]
_GRAVITY: Mapping[Finding | None, int] = {
    None: 0,
    "near the range": 1,
    "underflows": 2,
    "holds no digit": 3,
    "overflows": 4,
}
_NEAR = 2.0
"""Powers of two below the end of the range."""
_MANY = 0.1
"""Of the elements, or of their sum."""


@dataclass(frozen=True)
class Cast(NodePlace):
    """An FX node whose result has another floating dtype than an operand: a cast, or an op that promotes."""

    from_dtype: str
    to_dtype: str


@dataclass(frozen=True)
class RangeUse(NodePlace):
    """How one half-precision value uses its dtype.

    ``finding`` is what is remarkable of it, if anything; ``inherits`` says that an operand overflows, underflows or
    holds no digit, so that it does not begin here. ``run`` is the run of its graph, from 1, that this is of.
    """

    dtype: str
    use: Use
    finding: Finding | None
    inherits: bool
    run: int

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        use = {name: json_number(number) for name, number in found.pop("use").items()}
        return {**found, **use}


@dataclass(frozen=True)
class Precision:
    """Where dtypes change, and the half-precision values with a finding, in order of execution.

    Of a graph that runs more than once each value is told once, of the run in which it has the gravest finding, of
    several such rather of one in which that begins here.
    ``half_values`` counts the tensors that half-precision ops compute, views aside; ``closest`` is the one with the
    least head-room in any run.
    """

    casts: tuple[Cast, ...] = ()
    ranges: tuple[RangeUse, ...] = ()
    half_values: int = 0
    closest: RangeUse | None = None

    @property
    def origins(self) -> tuple[RangeUse, ...]:
        """The values at which a finding begins."""
        return tuple(each for each in self.ranges if not each.inherits)

    def to_json(self) -> dict[str, Any]:
        return {
            "casts": [asdict(cast) for cast in self.casts],
            "ranges": [each.to_json() for each in self.ranges],
            "half_values": self.half_values,
            "closest": self.closest.to_json() if self.closest else None,
        }


class PrecisionWatch:
    """Sees every step of every run of a graph, and keeps what is worth telling."""

    def __init__(self) -> None:
        self._casts: list[Cast] = []
        self._uses: dict[tuple[int, str], RangeUse] = {}
        self._closest: RangeUse | None = None

    def graph(self, run: GraphRun) -> Watch:
        """What is shown the values of ``run``, in the order of the graph."""
        if run.number == 1:
            self._casts.extend(casts_of(run))
        astray: set[str] = set()
        return lambda executed, *_: self._see(run, executed.step, astray)

    @property
    def seen(self) -> Precision:
        ranges = tuple(use for use in self._uses.values() if use.finding)
        return Precision(tuple(self._casts), ranges, len(self._uses), self._closest)

    def _see(self, run: GraphRun, step: Step, astray: set[str]) -> None:
        value, inherits = step.value, not astray.isdisjoint(step.operands)
        if not is_half_tensor(value) or not value.numel() or _shares_memory(step) or step.exact.shape != value.shape:
            if inherits:
                astray.add(step.node.name)
            return
        use = use_of(value, step.exact.double())
        finding = _finding(use)
        if finding is not None and finding != "near the range":
            astray.add(step.node.name)
        found = RangeUse.at(run, step.node, dtype_name(value.dtype), use, finding, inherits, run.number)
        known = self._uses.setdefault((run.index, step.node.name), found)
        if _gravity(found) > _gravity(known):
            self._uses[run.index, step.node.name] = found
        if self._closest is None or use.head_room < self._closest.use.head_room:
            self._closest = found


def casts_of(run: GraphRun) -> Iterator[Cast]:
    """The casts of a graph, in its order; a number that is not a tensor, or one of no dimension, promotes nothing."""
    for node in run.graph_module.graph.nodes:
        result = node.meta.get("val")
        if node.op != "call_function" or not is_floating_tensor(result):
            continue
        read = [operand.meta.get("val") for operand in node.all_input_nodes]
        tensors = [value for value in read if is_floating_tensor(value) and (value.dim() or not result.dim())]
        for dtype in dict.fromkeys(value.dtype for value in tensors if value.dtype != result.dtype):
            yield Cast.at(run, node, dtype_name(dtype), dtype_name(result.dtype))


def _finding(use: Use) -> Finding | None:
    if use.overflowed:
        return "overflows"
    if use.wrong > _MANY:
        return "holds no digit"
    if use.underflowed > _MANY:
        return "underflows"
    return "near the range" if use.head_room < _NEAR else None


def _gravity(use: RangeUse) -> tuple[int, bool]:
    """By which the run is chosen that a value is told of."""
    return _GRAVITY[use.finding], not use.inherits


def _shares_memory(step: Step) -> bool:
    """Whether the value shares the memory of an operand, whose use it has."""
    memory = step.value.untyped_storage().data_ptr()
    tensors = (operand for operand in step.operands.values() if isinstance(operand, torch.Tensor))
    return any(operand.untyped_storage().data_ptr() == memory for operand in tensors)
