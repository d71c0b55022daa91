"""Values as they are, in another dtype or in another place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from op_rows.operands import elements, few_elements
from op_rows.row import ALL, FLOATS, INTS, Row, Sample, case, new, special

aten = torch.ops.aten
prims = torch.ops.prims
NARROW_INTS = (torch.int8, torch.int16)


def casts(dtype: torch.dtype) -> Iterator[tuple[Tensor, torch.dtype]]:
    for to in (*ALL, *NARROW_INTS):
        x = new(dtype, 100, low=0, high=100) if dtype != torch.bool else new(dtype, 100)
        yield x, to
        if to == torch.bool or (to.is_floating_point and dtype.is_floating_point):
            yield special(dtype), to
        if not to.is_floating_point and not dtype.is_floating_point:
            yield special(dtype), to
        if to in INTS and to != torch.uint8 and dtype not in (torch.bool, torch.uint8):
            yield new(dtype, 100, low=-100, high=100), to
    yield new(dtype), torch.float32
    yield new(dtype, 0, 2), torch.float16


LARGE = torch.tensor([2**24 + 1, 2**31, 2**53 + 1, -(2**40) - 3])
TIES = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 65519.0, 65520.0, 2**-25, 1e-8, 3.4e38])
OUTSIDE = torch.tensor(
    [300.7, -1.5, -300.2, 65536.5, 2.0**31, -(2.0**31) - 256, 1e10, -1e10, 1e19, -1e19, torch.inf, torch.nan]
)
"""Floats that not every integer dtype holds."""


def to_copies(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(x, dtype=to) for x, to in casts(dtype))
    yield case(new(dtype, 2, 3))
    yield from (case(TIES.to(torch.float64), dtype=to) for to in FLOATS)
    yield from (case(TIES, dtype=to) for to in FLOATS)
    yield from (
        case(LARGE, dtype=to) for to in (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8)
    )
    if dtype.is_floating_point:
        yield from (case(OUTSIDE.to(dtype), dtype=to) for to in (*INTS, *NARROW_INTS, torch.bool))


def element_types(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(x, to) for x, to in casts(dtype))


def sources(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3), new(other, 3)) for other in (dtype, torch.float32, torch.int64, torch.bool))
    yield case(new(dtype, 2, 3), new(dtype, 2, 3))
    yield from (case(new(dtype, 2, 3), new(dtype, *size)) for size in ((2, 1), ()))
    yield from (case(new(dtype, 0, 3), new(dtype, *size)) for size in ((), (1, 3)))
    yield case(new(dtype), new(torch.float32))


def fillings(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *size), number) for size in ((2, 3), (), (0, 2)) for number in (1, 1 / 3, True))


def tensor_fillings(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *size), new(dtype)) for size in ((2, 3), (), (0, 2)))
    yield case(new(dtype, 2), torch.tensor(2.5))


def reread(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(special(dtype), dtype)
    if dtype == torch.bool:
        yield case(special(dtype), torch.uint8)


COPIES = (
    Row(aten._to_copy.default, (), to_copies),
    Row(prims.convert_element_type.default, (), element_types),
    Row(
        aten.clone.default,
        ("clone",),
        lambda d: [*elements(d), case(new(d, 4, 3).t(), memory_format=torch.contiguous_format)],
    ),
    Row(prims.clone.default, (), few_elements),
    Row(aten.detach.default, (), elements),
    Row(aten.detach_copy.default, (), elements),
    Row(aten.alias.default, (), elements),
    Row(aten.lift_fresh.default, (), elements),
    Row(aten.lift_fresh_copy.default, (), elements),
    Row(aten.conj_physical.default, ("conj_physical",), few_elements),
    Row(aten.positive.default, (), few_elements, (*FLOATS, *INTS)),
    Row(prims.view_of.default, (), few_elements),
    Row(aten.copy.default, (), sources),
    Row(aten.fill.Scalar, (), fillings),
    Row(aten.fill.Tensor, (), tensor_fillings),
    Row(prims.fill.default, (), lambda d: [case(new(d, 2, 3), 1)]),
    Row(aten.view.dtype, (), reread),
    Row(prims.view_of_dtype.default, (), reread),
)

ROWS = COPIES
