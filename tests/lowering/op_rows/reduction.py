"""Reductions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch

from op_rows.row import FLOATS, SUM, Row, Sample, case, new, special

aten = torch.ops.aten
prims = torch.ops.prims


DIMS: tuple[Any, ...] = ([0], [-1], [0, 2], [-2, 0], [], None)


def reduced(dtype: torch.dtype, *, none: bool = True, **kwargs: Any) -> Iterable[Sample]:
    for dims in DIMS[: None if none else -1]:
        yield from (case(new(dtype, 2, 3, 5), dims, keepdim, **kwargs) for keepdim in (False, True))
    yield from (case(new(dtype), dims, **kwargs) for dims in ([0], [-1], []))
    yield case(new(dtype, 3, 0), [0], **kwargs)
    if dtype.is_floating_point:
        yield case(special(dtype), [0], **kwargs)


def sums(dtype: torch.dtype) -> Iterable[Sample]:
    yield from reduced(dtype)
    yield case(new(dtype, 2, 3), [1], dtype=torch.uint8)
    yield from (case(new(dtype, 2, 3), dims, dtype=torch.bool) for dims in ([], [1]))
    yield case(new(dtype, 3, 0), [1])
    yield from (case(new(dtype, 2, 3), [0], dtype=to) for to in (torch.float32, torch.int64))
    yield case(torch.full([3], 2**24 + 1), [0])
    yield case(torch.tensor([[2**53 + 1, 2, 0], [2**62 + 1, 2**62, 2**62], [-(2**63), -1, -(2**54) - 1]]), [1])


def all_sums(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *size)) for size in ((), (0,), (2, 3), (2000,)))
    yield case(new(dtype, 3), dtype=torch.float64)
    yield case(torch.full([3], 2**40 + 1))
    yield case(torch.full([5], 2**61 + 1))
    yield case(torch.full([5, 60], 300, dtype=torch.int32))
    if not dtype.is_floating_point and dtype != torch.bool:
        extremes = torch.tensor([torch.iinfo(dtype).min, torch.iinfo(dtype).max]).to(dtype)
        for extreme, to in itertools.product(extremes, (torch.int64, torch.int32, torch.uint8, torch.bool)):
            yield case(extreme.expand(3000), dtype=to)


def means(dtype: torch.dtype) -> Iterable[Sample]:
    yield from reduced(dtype)
    yield case(new(dtype, 3, 0), [1])
    yield case(new(dtype, 3, 2), [1], dtype=torch.float32)


def all_means(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *size)) for size in ((), (0,), (2, 3), (2000,)))


def running_sums(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3, 5), dim) for dim in (0, 1, -1))
    yield case(new(dtype), 0)
    yield case(new(dtype, 0, 2), 0)
    yield from (case(new(dtype, 4), 0, dtype=to) for to in (torch.float32, torch.uint8))
    yield case(torch.full([4], 2**24 + 1), 0)
    yield case(torch.tensor([2**53 + 1, 2**62, 2**62, -5]), 0)


def spreads(dtype: torch.dtype) -> Iterable[Sample]:
    for dims in ([0], [0, 2], [0, 1, 2]):
        yield from (case(new(dtype, 2, 3, 5), dims, correction) for correction in (0, 1, 2))
    yield case(new(dtype, 1, 3), [0], 0)


def corrected(dtype: torch.dtype) -> Iterable[Sample]:
    for dims in ([0], [0, -1], [], None):
        yield from (case(new(dtype, 2, 3, 5), dims, correction=c, keepdim=c == 1) for c in (None, 0, 1, 2.5))
    yield case(new(dtype, 200, 2), [0])
    yield from (case(new(dtype, *size), [0]) for size in ((1, 3), (0, 3), ()))
    yield case(new(dtype, 2, 0), [0], correction=0, keepdim=True)
    yield case(new(dtype, 3), correction=5)
    yield case(special(dtype), [0])
    if dtype == torch.float32:  # their squares are zero and infinite
        yield from (case(new(dtype, 3, 4) * size, [1]) for size in (1e-25, 1e30))


def products(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3, 5), dim, keepdim) for dim in (0, 1, -1) for keepdim in (False, True))
    yield from (case(new(dtype, *size), 0) for size in ((), (0, 2), (7,), (1, 2)))
    yield from (case(new(dtype, 3), 0, dtype=to) for to in (torch.float32, torch.int64, torch.uint8))
    yield case(torch.tensor([3**30, 3, 3, 1]), 0)
    yield case(torch.tensor([[2**40, 2**40, 5], [3**35, 3, 3]]), 1)
    if dtype.is_floating_point:
        yield case(special(dtype).reshape(4, 4), 1)


def all_products(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *size)) for size in ((), (0,), (2, 3), (2, 0)))
    yield case(new(dtype, 3), dtype=torch.float64)
    yield case(torch.tensor([[3**30, 3], [3, 1]]))


def truths(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *size, low=0, high=2)) for size in ((), (0,), (2, 3), (5,)))
    yield from (case(torch.full((2, 3), value, dtype=dtype)) for value in (0, 1))
    yield case(special(dtype))


def truths_along(dtype: torch.dtype, *, many: bool) -> Iterable[Sample]:
    x = new(dtype, 2, 3, 5, low=0, high=2)
    x[0, 0], x[1, 1] = 0, 1
    for dims in DIMS if many else (0, 1, -1):
        yield from (case(x, dims, keepdim) for keepdim in (False, True))
    yield from (case(new(dtype, 2, 0, 3), [d] if many else d) for d in (0, 1))
    yield case(new(dtype), [0] if many else -1)
    if dtype.is_floating_point:
        yield case(torch.tensor([[0, -0.0], [torch.nan, 0]], dtype=dtype), [1] if many else 1)


ROWS = (
    Row(aten.sum.dim_IntList, ("sum",), sums, units=SUM),
    Row(aten.sum.default, ("sum",), all_sums, units=2 * SUM),  # 2000 terms that mostly cancel, as in the mean
    Row(prims.sum.default, (), lambda d: (case(new(d, 2, 3, 5), dims) for dims in ([0], [0, 2])), FLOATS, SUM),
    Row(aten.mean.dim, ("mean",), means, FLOATS, SUM),
    Row(aten.mean.default, ("mean",), all_means, FLOATS, 2 * SUM),
    Row(aten.prod.default, ("prod",), all_products, units=SUM),
    Row(aten.prod.dim_int, ("prod",), products, units=SUM),
    Row(
        prims.prod.default,
        (),
        lambda d: (case(new(d, 2, 3, 5), dims) for dims in ([0], [0, 2])),
        (*FLOATS, torch.int64),
        SUM,
    ),
    Row(aten.any.default, ("any",), truths),
    Row(aten.any.dim, ("any",), lambda d: truths_along(d, many=False)),
    Row(aten.any.dims, ("any",), lambda d: truths_along(d, many=True)),
    Row(aten.all.default, ("all",), truths),
    Row(aten.all.dim, ("all",), lambda d: truths_along(d, many=False)),
    Row(aten.all.dims, ("all",), lambda d: truths_along(d, many=True)),
    Row(prims.var.default, (), spreads, FLOATS, SUM),
    Row(aten.var.correction, ("var",), corrected, FLOATS, SUM),
    Row(aten.std.correction, ("std",), corrected, FLOATS, SUM),
    Row(aten.var_mean.correction, ("var_mean",), corrected, FLOATS, SUM, scale=1),
    Row(aten.std_mean.correction, ("std_mean",), corrected, FLOATS, SUM, scale=1),
    Row(aten.cumsum.default, ("cumsum",), running_sums, units=SUM),
)
