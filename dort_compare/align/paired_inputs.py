"""Which inputs of two models are one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import onnx
import torch

from dort_compare.align.orders import Order
from dort_compare.align.tensor_types import sizes
from dort_compare.align.two_dtypes import are_of_one_kind
from dort_compare.dtypes import dtype_of_onnx
from dort_compare.errors import UsageError
from dort_compare.trace.dataflow import Dataflow

Sizes = Sequence[int | None]
"""None for those left open."""
Declared = tuple[int, Sizes | None]
"""Element type and sizes."""


def input_type(flow: Dataflow, name: str) -> Declared:
    """What an input is declared as."""
    kind = flow.inputs[name].type.tensor_type
    return kind.elem_type, sizes(kind) if kind.HasField("shape") else None


def input_dtype(flow: Dataflow, name: str) -> torch.dtype:
    """The dtype that an input is declared in. Raises UsageError where torch has none such."""
    element = input_type(flow, name)[0]
    dtype = dtype_of_onnx(element)
    if dtype is None:
        kind = onnx.TensorProto.DataType.Name(element)
        raise UsageError(f"{flow.title}: input {name!r} is of type {kind}, which torch does not have")
    return dtype


class _Likeness(NamedTuple):
    """What inputs are paired by: one name, one dtype rather than one kind of number, dimensions in one order."""

    is_named: bool
    is_exact: bool
    is_plain: bool

    def order(self, first: Declared, second: Declared) -> Order | None:
        """The order in which the second type is the first; None where they are not alike."""
        is_alike = first[0] == second[0] if self.is_exact else are_of_one_kind(first[0], second[0])
        order = _order(first[1], second[1]) if is_alike else None
        return None if self.is_plain and order else order


_LIKENESSES = (
    _Likeness(is_named=True, is_exact=True, is_plain=False),
    _Likeness(is_named=True, is_exact=False, is_plain=False),
    _Likeness(is_named=False, is_exact=True, is_plain=True),
    _Likeness(is_named=False, is_exact=True, is_plain=False),
    _Likeness(is_named=False, is_exact=False, is_plain=True),
    _Likeness(is_named=False, is_exact=False, is_plain=False),
)
"""The most telling first."""


def pair_inputs(first: Dataflow, second: Dataflow) -> dict[tuple[str, str], Order]:
    """Inputs that are alike, those of one name and type first; of others the first that is. By pair the order in which
    the second's dimensions are those of the first's, () where they are."""
    found: dict[tuple[str, str], Order] = {}
    for likeness in _LIKENESSES:
        taken = {name for name, _ in found}, {name for _, name in found}
        rest = [name for name in second.inputs if name not in taken[1]]
        for one in (name for name in first.inputs if name not in taken[0]):
            for other in [name for name in rest if name == one or not likeness.is_named]:
                order = likeness.order(input_type(first, one), input_type(second, other))
                if order is not None:
                    rest.remove(other)
                    found[one, other] = order
                    break
    return found


def _order(shape: Sizes | None, other: Sizes | None) -> Order | None:
    """The order of dimensions in which the second shape is the first, () as it stands; None where it is in none.

    Beside that, the channels may be the last or the first dimension behind that of the batch. Where sizes are left
    open, more that are known are to be the same.
    """
    if shape is None or other is None:
        return ()
    plain = tuple(range(len(shape)))
    moved = [(0, *plain[-1:], *plain[1:-1]), (0, *plain[2:], *plain[1:2])] if len(shape) > 2 else []
    if len(shape) != len(other):
        return None
    fitting = [order for order in (plain, *moved) if sizes_fit(shape, [other[dim] for dim in order])]
    if not fitting:
        return None
    best = max(fitting, key=lambda order: sum(a == other[dim] is not None for a, dim in zip(shape, order, strict=True)))
    return () if best == plain else best


def sizes_fit(shape: Sizes, other: Sizes) -> bool:
    """Whether two shapes may be one, whatever they leave open."""
    return len(shape) == len(other) and all(a == b or None in (a, b) for a, b in zip(shape, other, strict=True))
