"""One row a value of two ONNX models: what stands on either side, and how far apart the two lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import onnx
import torch

from dort_compare.dtypes import dtype_name
from dort_compare.measure.distance.distances import Distance
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.distance.summary import summarize

Mark = Literal["=", "~", "-", "+"]
_KINDS = ("input", "initializer", "output")


@dataclass(frozen=True)
class ModelTrace:
    """A model with the values of one execution of it, and their names in order of execution."""

    model: onnx.ModelProto
    names: Sequence[str]
    tensors: Mapping[str, torch.Tensor]

    @cached_property
    def op_types(self) -> Mapping[str, str]:
        """By the name of a node output, the operator that makes it."""
        return {name: node.op_type for node in self.model.graph.node for name in node.output}

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        """By name: input, initializer or output; what is missing is a result in between."""
        return {value.name: kind for kind in _KINDS for value in getattr(self.model.graph, kind)}


@dataclass(frozen=True)
class PairedValue:
    """One of the two values of a row."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    content: str
    op_type: str
    name: str


@dataclass(frozen=True)
class PairRow:
    """``=`` same dtype, shape and every element; ``~`` paired but different; ``-`` and ``+`` on one side only."""

    mark: Mark
    first: PairedValue | None
    second: PairedValue | None
    distance: Distance | None = None


def pair_row(first: str | None, second: str | None, first_trace: ModelTrace, second_trace: ModelTrace) -> PairRow:
    """The row of two value names, one of which may be None."""
    left = _value(first, first_trace) if first is not None else None
    right = _value(second, second_trace) if second is not None else None
    if first is None or second is None:
        return PairRow("+" if first is None else "-", left, right)
    found = distance(first_trace.tensors[first], second_trace.tensors[second]).between("the first", "the second")
    return PairRow("=" if found.equal else "~", left, right, found)


def _value(name: str, trace: ModelTrace) -> PairedValue:
    tensor = trace.tensors[name]
    return PairedValue(
        kind=trace.kinds.get(name, "result"),
        dtype=dtype_name(tensor.dtype),
        shape=tuple(tensor.shape),
        content=summarize(tensor),
        op_type=trace.op_types.get(name, ""),
        name=name,
    )
