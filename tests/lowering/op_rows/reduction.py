"""Reductions."""

from __future__ import annotations

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
    yield case(new(dtype, 3, 0), [1])
    yield from (case(new(dtype, 2, 3), [0], dtype=to) for to in (torch.float32, torch.int64))
    yield case(torch.full([3], 2**24 + 1), [0])


def all_sums(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *size)) for size in ((), (0,), (2, 3), (2000,)))
    yield case(new(dtype, 3), dtype=torch.float64)
    yield case(torch.full([3], 2**40 + 1))


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


def spreads(dtype: torch.dtype) -> Iterable[Sample]:
    for dims in ([0], [0, 2], [0, 1, 2]):
        yield from (case(new(dtype, 2, 3, 5), dims, correction) for correction in (0, 1, 2))
    yield case(new(dtype, 1, 3), [0], 0)


ROWS = (
    Row(aten.sum.dim_IntList, ("sum",), sums, units=SUM),
    Row(aten.sum.default, ("sum",), all_sums, units=SUM),
    Row(prims.sum.default, (), lambda d: (case(new(d, 2, 3, 5), dims) for dims in ([0], [0, 2])), FLOATS, SUM),
    Row(aten.mean.dim, ("mean",), means, FLOATS, SUM),
    Row(aten.mean.default, ("mean",), all_means, FLOATS, SUM),
    Row(prims.var.default, ("var",), spreads, FLOATS, SUM),
    Row(aten.amax.default, ("amax",), lambda d: reduced(d, none=False)),
    Row(aten.amin.default, ("amin",), lambda d: reduced(d, none=False)),
    Row(aten.cumsum.default, ("cumsum",), running_sums, units=SUM),
)
