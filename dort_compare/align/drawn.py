"""Random values for the inputs of models, such as they take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set

import onnx
import torch

from dort_compare.align.paired_inputs import Sizes, input_dtype, input_type
from dort_compare.align.two_dtypes import rounded
from dort_compare.errors import UsageError
from dort_compare.trace.dataflow import Dataflow, Node
from dort_compare.trace.passages import RESHAPES

_SIZE = 4
"""Of a dimension that the model leaves open."""
_LIMIT = 2**31  # elements
_PASSES_ON = RESHAPES | {"Identity", "Cast"}
_JOINS = frozenset(["Concat", "Mul"])
_SIZES = frozenset([("ConstantOfShape", 0), ("Expand", 1), ("Range", 1), ("Reshape", 1)])
"""Operands, by operator and place, that are sizes."""
_VARIANCES = frozenset([("BatchNormalization", 4), ("Sqrt", 0)])
"""Operands that are not below 0."""


def drawn_for(
    takers: Sequence[tuple[Dataflow, str]], shapes: Sequence[Sizes | None], generator: torch.Generator
) -> torch.Tensor:
    """A random value in sizes that each of the inputs takes, of numbers that the dtypes of all of them hold."""
    flow, name = takers[0]
    sizes = _sizes(shapes)
    if sizes is None:
        raise UsageError(f"{flow.title}: input {name!r} declares no shape to draw values in; give --inputs")
    declared = "x".join(map(str, sizes))
    if min(sizes, default=0) < 0:
        raise UsageError(
            f"{flow.title}: input {name!r} is declared as {declared}, and no dimension can be negative; leave it open, "
            "or give it its size"
        )
    if math.prod(sizes) > _LIMIT:
        raise UsageError(
            f"{flow.title}: input {name!r} is declared as {declared}, too large to be drawn; give --inputs"
        )
    dtypes = [input_dtype(*taker) for taker in takers]
    dtype = dtypes[0]
    if dtype == torch.bool:
        return torch.randint(2, sizes, generator=generator, device="cpu").bool()
    if dtype.is_floating_point or dtype.is_complex:
        drawn = torch.randn(sizes, generator=generator, dtype=torch.float64, device="cpu")
        return rounded(drawn.abs() if any(_is_variance(*taker) for taker in takers) else drawn, dtypes)
    if math.prod(sizes) == 1 and any(_is_size(*taker) for taker in takers):
        return torch.full(sizes, _SIZE, dtype=dtype, device="cpu")
    limits = [torch.iinfo(dtype) for dtype in dtypes]
    rows = min((rows for taker in takers if (rows := _rows(*taker)) is not None), default=None)
    if rows is None and all(limit.bits <= 16 for limit in limits) and not any(_may_be_places(*each) for each in takers):
        low, high = max(limit.min for limit in limits), min(limit.max for limit in limits)
        return torch.randint(low, high + 1, sizes, generator=generator, device="cpu").to(dtype)
    most = min(2 if rows is None else rows, *(limit.max for limit in limits))
    return torch.randint(most, sizes, generator=generator, device="cpu").to(dtype)


def _sizes(declared: Sequence[Sizes | None]) -> list[int] | None:
    """What one model leaves open, the other may say; None where none says how many dimensions there are."""
    shapes = [shape for shape in declared if shape is not None]
    if not shapes:
        return None
    return [next((size for size in sizes if size is not None), _SIZE) for sizes in zip(*shapes, strict=True)]


def _is_size(flow: Dataflow, name: str) -> bool:
    """Whether an integer is one of the sizes that a node is told."""
    reading = _reading(flow, name, _PASSES_ON | _JOINS)
    return any((node.proto.op_type, slot) in _SIZES for node, slot in reading)


def _is_variance(flow: Dataflow, name: str) -> bool:
    """Whether a float below 0 would give nothing but NaN: what a batch norm divides by, or what a root is taken of, a
    small number added perhaps."""
    reading = _reading(flow, name, _PASSES_ON | {"Add"})
    return any((node.proto.op_type, slot) in _VARIANCES for node, slot in reading)


def _rows(flow: Dataflow, name: str) -> int | None:
    """How many rows the tables have that an integer input picks from; None where it picks from none."""
    found = []
    for node, slot in _reading(flow, name, _PASSES_ON):
        if node.proto.op_type == "Gather" and slot == 1:
            axis = next((a.i for a in node.proto.attribute if a.name == "axis"), 0)
            shape = _shape(flow, node.operands[0])
            found += [shape[axis]] if shape and -len(shape) <= axis < len(shape) else []
    known = [size for size in found if size]
    return max(1, min(known)) if known else None


def _may_be_places(flow: Dataflow, name: str) -> bool:
    """Whether narrow integers become such as operators take for places, which none takes from narrow ones."""
    casts = (node for node, _ in _reading(flow, name, _PASSES_ON) if node.proto.op_type == "Cast")
    return any(a.i in (onnx.TensorProto.INT32, onnx.TensorProto.INT64) for node in casts for a in node.proto.attribute)


def _reading(flow: Dataflow, name: str, through: Set[str]) -> Iterator[tuple[Node, int]]:
    """Who reads a value, or what operators of ``through`` make of it: node and which operand."""
    todo, seen = [name], {name}
    while todo:
        for node, slot in flow.readers.get(todo.pop(), ()):
            yield node, slot
            op_type = node.proto.op_type
            if op_type in through and (slot == 0 or op_type in _JOINS):
                todo += [result for result in node.results if result not in seen]
                seen.update(node.results)


def _shape(flow: Dataflow, name: str) -> Sizes:
    if name in flow.constants:
        return list(flow.constants[name].dims)
    return input_type(flow, name)[1] or [] if name in flow.inputs else []
