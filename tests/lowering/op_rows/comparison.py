"""Comparisons, the larger and the smaller, clamping, choice; logic, bits and shifts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from op_rows.operands import alike, elements, few_elements, numbers, tensor_pairs
from op_rows.row import BOOL, FLOATS, INTS, Row, Sample, Samples, case, new, special

aten = torch.ops.aten
prims = torch.ops.prims
NUMBERS = (*FLOATS, *INTS)


def compared(dtype: torch.dtype) -> Iterable[Sample]:
    yield from tensor_pairs(dtype)
    yield case(special(dtype), special(dtype))
    large = torch.tensor([2**24, 2**24 + 1, 2**53 + 1])
    yield case(large, large - 1)
    yield case(large, large.float())
    yield case(large, large.to(torch.int32))
    yield case(new(dtype, 3), large)


def compared_numbers(dtype: torch.dtype) -> Iterable[Sample]:
    yield from numbers(dtype)
    yield case(special(dtype), 0)
    yield case(special(dtype), 1.0)
    yield case(torch.tensor([2**24, 2**24 + 1, 2**53 + 1]), 2**24 + 1)
    yield case(torch.tensor([2**24, 2**24 + 1]), 2.0**24)
    yield case(torch.arange(3), 1.5)
    yield case(torch.tensor([0, 255], dtype=torch.uint8), 255)
    if dtype in FLOATS:
        yield case(torch.tensor([0.1, 0.3], dtype=dtype), 0.1)
        yield case(special(dtype), torch.inf)


COMPARISON = tuple(
    row
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for row in (
        Row(getattr(aten, name).Tensor, (name,), compared),
        Row(getattr(aten, name).Scalar, (name,), compared_numbers),
        Row(getattr(prims, name).default, (), alike),
    )
)


def extremes(dtype: torch.dtype) -> Iterable[Sample]:
    yield from tensor_pairs(dtype)
    yield case(special(dtype), special(dtype).reshape(-1, 1))
    large = torch.tensor([2**24, 2**24 + 1, 2**53 + 1])
    yield case(large, large - 1)


def clamped(dtype: torch.dtype) -> Iterable[Sample]:
    for low, high in ((1, 3), (None, 2), (2, None), (3, 1), (0.5, 2.5)):
        yield case(special(dtype), low, high)
        yield case(new(dtype), low, high)
    if dtype.is_floating_point:
        yield case(special(dtype), torch.nan, 1)
        yield case(special(dtype), -torch.inf, 0.1)
    if dtype == torch.uint8:
        yield case(special(dtype), -1, 100)


def bounded(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(special(dtype), number) for number in (2, 0.3, 0))
    yield case(new(dtype), 1)


def clamped_by_tensors(dtype: torch.dtype) -> Iterable[Sample]:
    x, low, high = new(dtype, 2, 9), new(dtype, 9), new(dtype, 2, 1)
    yield from (case(x, *bounds) for bounds in ((low, high), (low, None), (None, high)))
    yield case(special(dtype), special(dtype).reshape(-1, 1), new(dtype))
    yield case(new(dtype, 3), torch.tensor([0.5, 1.5, 2.5]), None)


def bounded_by_tensor(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(special(dtype), special(dtype).reshape(-1, 1))
    yield case(new(dtype, 3), torch.tensor([0.5, 1.5, 2.5]))
    yield case(new(dtype), new(dtype, 2))


EXTREMES = (
    Row(aten.maximum.default, ("maximum",), extremes),
    Row(aten.minimum.default, ("minimum",), extremes),
    Row(aten.fmax.default, ("fmax",), extremes),
    Row(aten.fmin.default, ("fmin",), extremes),
    *(Row(getattr(prims, name).default, (), alike, NUMBERS) for name in ("maximum", "minimum", "fmax", "fmin")),
    Row(aten.clamp.default, (), clamped, NUMBERS),
    Row(aten.clamp_min.default, (), bounded, NUMBERS),
    Row(aten.clamp_max.default, (), bounded, NUMBERS),
    Row(aten.clamp.Tensor, ("clamp",), clamped_by_tensors, NUMBERS),
    Row(aten.clamp_min.Tensor, ("clamp_min",), bounded_by_tensor, NUMBERS),
    Row(aten.clamp_max.Tensor, ("clamp_max",), bounded_by_tensor, NUMBERS),
)


def integers(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 2, 30), new(dtype, 30))
    yield case(new(dtype), new(dtype, 2))
    yield case(special(dtype), special(dtype).flip(0))
    yield case(new(dtype, 3), new(torch.int64, 3))
    yield case(new(dtype, 3), new(torch.bool, 3))


def integers_and_number(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 30), number) for number in (True, 1, 6, 0))
    yield case(special(dtype), 5)


def swapped(samples: Samples) -> Samples:
    return lambda dtype: (case(y, x) for (x, y), _ in samples(dtype))


BITWISE = tuple(
    row
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
    for row in (
        Row(getattr(aten, name).Tensor, (name,), integers, (*INTS, *BOOL)),
        Row(getattr(aten, name).Scalar, (), integers_and_number, (*INTS, *BOOL)),
        Row(getattr(aten, name).Scalar_Tensor, (), swapped(integers_and_number), (*INTS, *BOOL)),
        Row(getattr(prims, name).default, (), alike, (*INTS, *BOOL)),
    )
)


def shifted(dtype: torch.dtype) -> Iterable[Sample]:
    """By negative numbers too, and by as many bits as there are and more."""
    bits = [0, 1, 7, 8, 31, 32, 63, 64, 100] + ([] if dtype == torch.uint8 else [-1, -100])
    yield case(special(dtype), torch.tensor(bits, dtype=dtype).reshape(-1, 1))
    yield case(new(dtype, 3), torch.tensor([1, 2, 3]))
    yield case(new(dtype, 0, 2), new(dtype))


def shifted_by_number(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(special(dtype), bits) for bits in (0, 1, 9, 64))


SHIFTS = tuple(
    row
    for name, dunder, prim in (
        ("bitwise_left_shift", "__lshift__", "shift_left"),
        ("bitwise_right_shift", "__rshift__", "shift_right_arithmetic"),
    )
    for row in (
        Row(getattr(aten, name).Tensor, (name,), shifted, INTS),
        Row(getattr(aten, name).Tensor_Scalar, (), shifted_by_number, INTS),
        Row(getattr(aten, name).Scalar_Tensor, (), lambda d: [case(5, torch.tensor([0, 1, 7], dtype=d))], INTS),
        Row(getattr(aten, dunder).Tensor, (), shifted, INTS),
        Row(getattr(aten, dunder).Scalar, (), shifted_by_number, INTS),
        Row(getattr(prims, prim).default, (), lambda d: [case(special(d), torch.full_like(special(d), 3))], INTS),
    )
)


def chosen(dtype: torch.dtype) -> Iterable[Sample]:
    condition = new(torch.bool, 4, 3)
    yield case(condition, special(dtype)[:2].repeat(3)[:3], new(dtype, 4, 3))
    yield from (case(condition, new(dtype, 4, 1), new(other, 3)) for other in (torch.float32, torch.int64, torch.bool))
    yield case(condition, new(dtype, 4, 3), torch.tensor(1 / 3))
    yield case(new(torch.bool), new(dtype), new(dtype))
    yield case(new(torch.bool, 0, 3), new(dtype), new(dtype, 3))


def chosen_alike(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(new(torch.bool, *size), new(dtype, *size), new(dtype, *size)) for size in ((), (0, 2), (4, 3)))


def masked(dtype: torch.dtype, fill: Callable[[Any], Any]) -> Iterable[Sample]:
    mask = new(torch.bool, 2, 1)
    yield from (case(new(dtype, 2, 3), mask, fill(number)) for number in (0, 1, True))
    yield case(new(dtype), new(torch.bool), fill(1))
    yield case(new(dtype), mask, fill(1))
    if dtype.is_floating_point:
        yield from (case(new(dtype, 2, 3), mask, fill(number)) for number in (-torch.inf, torch.nan, 1 / 3))
        yield case(new(dtype, 2, 3), mask, fill(torch.finfo(dtype).min))


def chosen_number(first: bool, second: bool) -> Samples:
    def samples(dtype: torch.dtype) -> Iterable[Sample]:
        for number in (1, 1 / 3, True):
            operands = (number if first else new(dtype, 3), number if second else new(dtype, 2, 1))
            yield case(new(torch.bool, 2, 3), *operands)

    return samples


LOGIC = (
    *BITWISE,
    *SHIFTS,
    Row(aten.bitwise_not.default, ("bitwise_not",), elements, (*INTS, *BOOL)),
    Row(prims.bitwise_not.default, (), few_elements, (*INTS, *BOOL)),
    Row(aten.logical_and.default, ("logical_and",), tensor_pairs),
    Row(aten.logical_or.default, ("logical_or",), tensor_pairs),
    Row(aten.logical_xor.default, ("logical_xor",), tensor_pairs),
    Row(aten.logical_not.default, ("logical_not",), elements),
    Row(aten.where.self, ("where",), chosen),
    Row(prims.where.default, (), chosen_alike),
    Row(aten.where.ScalarSelf, (), chosen_number(True, False)),
    Row(aten.where.ScalarOther, (), chosen_number(False, True)),
    Row(aten.where.Scalar, (), chosen_number(True, True), (torch.float32,)),
    Row(aten.masked_fill.Scalar, ("masked_fill",), lambda d: masked(d, lambda x: x)),
    Row(aten.masked_fill.Tensor, ("masked_fill",), lambda d: masked(d, torch.tensor)),
)

ROWS = (*COMPARISON, *EXTREMES, *LOGIC)
