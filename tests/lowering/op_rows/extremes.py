"""Extremes, sorting, running extremes and products, searching."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from op_calls import Call
from torch import Tensor

from op_rows.reduction import reduced
from op_rows.row import ALL, FLOATS, INTS, ROUNDING, SUM, Row, Sample, case, new, special

aten = torch.ops.aten
prims = torch.ops.prims

NUMBERS = (*FLOATS, *INTS)


def awkward(dtype: torch.dtype) -> Iterable[Tensor]:
    """Two-dimensional tensors with ties, NaN, infinities, and integers that float64 does not hold."""
    if dtype.is_floating_point:
        rows = [[1, torch.nan, 3, torch.nan, torch.inf], [torch.inf, 3, torch.nan, 3, 1], [-torch.inf, 0, -0.0, 0, 2]]
        yield torch.tensor([*rows, [torch.nan] * 5, [2, 1, 2, 1, 0]], dtype=dtype)
    elif dtype == torch.int64:
        yield torch.tensor([[2**53, 2**53 + 1, 2**53 - 1], [-(2**63), 2**63 - 1, -(2**63)], [3, 3, 3]])
    else:
        yield torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 1]]).to(dtype)


def distinct(dtype: torch.dtype, *shape: int) -> Tensor:
    """No element twice."""
    return torch.randperm(torch.Size(shape).numel()).reshape(shape).to(dtype)


def along(dtype: torch.dtype) -> Iterable[Sample]:
    for x in (new(dtype, 2, 3, 5), *awkward(dtype)):
        yield from (case(x, dim, keepdim) for dim in (0, -1) for keepdim in (False, True))
    yield case(new(dtype), 0)
    yield case(new(dtype), -1, True)
    yield case(new(dtype, 0, 3), 1)


def placed(dtype: torch.dtype) -> Iterable[Sample]:
    yield from along(dtype)
    for x in (*awkward(dtype), new(dtype, 2, 3), new(dtype)):
        yield from (case(x, None, keepdim) for keepdim in (False, True))


def everything(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(x) for x in (*awkward(dtype), new(dtype, 2, 3), new(dtype), special(dtype)))


def both(dtype: torch.dtype) -> Iterable[Sample]:
    for x in (new(dtype, 2, 3), *awkward(dtype), new(dtype)):
        yield from (case(x, dim=dim, keepdim=keepdim) for dim in (None, 0, -1) for keepdim in (False, True))


def prim_reductions(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(x, dims) for x in (new(dtype, 2, 3), *awkward(dtype)) for dims in ([0], [0, 1]))


def sorted_(dtype: torch.dtype) -> Iterable[Sample]:
    for x in (new(dtype, 2, 3, 5), *awkward(dtype)):
        yield from (case(x, dim, descending) for dim in (0, -1) for descending in (False, True))
    yield from (case(new(dtype, *size)) for size in ((), (0,), (2, 0), (0, 2)))


def stably_sorted(dtype: torch.dtype) -> Iterable[Sample]:
    for args, _ in (*sorted_(dtype), case(new(dtype, 40, low=0, high=3))):
        dim, descending = (*args[1:], *(-1, False)[len(args) - 1 :])
        yield case(args[0], stable=True, dim=dim, descending=descending)


def top(dtype: torch.dtype) -> Iterable[Sample]:
    for x in (distinct(dtype, 3, 6), with_nan(dtype)):
        yield from (case(x, k, dim, largest) for k, dim in ((1, 0), (3, -1), (0, 0)) for largest in (True, False))
    yield case(new(dtype), 1, 0)
    yield case(distinct(dtype, 5), 5, 0, True, True)


def with_nan(dtype: torch.dtype) -> Tensor:
    x = distinct(dtype, 4, 5)
    if dtype.is_floating_point:
        x[0, 1] = x[2, 3] = torch.nan
        x[2, 4], x[1, 0] = torch.inf, -torch.inf
    return x


def kth(dtype: torch.dtype) -> Iterable[Sample]:
    for x in (distinct(dtype, 3, 6), with_nan(dtype)):
        yield from (case(x, k, dim, keepdim) for k, dim in ((1, 0), (3, -1)) for keepdim in (True, False))
    yield case(new(dtype), 1)
    yield case(distinct(dtype, 5), 5, 0)


def medians(dtype: torch.dtype) -> Iterable[Sample]:
    for x in (distinct(dtype, 3, 6), with_nan(dtype)):
        yield from (case(x, dim, keepdim) for dim in (0, -1) for keepdim in (True, False))
    yield from (case(new(dtype, *size), 0) for size in ((), (1,), (1, 0)))


def all_medians(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(x) for x in (distinct(dtype, 3, 6), with_nan(dtype), new(dtype), distinct(dtype, 5)))
    if dtype.is_floating_point:
        yield case(new(dtype, 0))
        yield case(torch.full((3,), torch.nan, dtype=dtype))


def modes(dtype: torch.dtype) -> Iterable[Sample]:
    few = new(dtype, 3, 9, low=0, high=3)
    yield from (case(few, dim, keepdim) for dim in (0, -1) for keepdim in (True, False))
    yield case(torch.tensor([2, 1, 2, 1, 0]).to(dtype))
    yield case(new(dtype))
    yield case(new(dtype, 1))


def running(dtype: torch.dtype) -> Iterable[Sample]:
    for x in (new(dtype, 2, 3, 5), *awkward(dtype)):
        yield from (case(x, dim) for dim in (0, 1, -1))
    yield case(new(dtype), 0)
    yield case(new(dtype, 0, 2), 0)
    yield case(new(dtype, 1), 0)


def running_products(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3, 5), dim) for dim in (0, 1, -1))
    yield from (case(new(dtype, *size), 0) for size in ((), (0, 2), (1,)))
    yield from (case(new(dtype, 4), 0, dtype=to) for to in (torch.float32, torch.uint8))
    yield case(torch.tensor([3**30, 3, 3, 2**40, 5]), 0)
    yield case(torch.tensor([1e-30, 1e-8, 1e30, 1e30, 0, 7, torch.inf]), 0)


def running_logarithms(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3, 5), dim) for dim in (0, 1, -1))
    yield from (case(new(dtype, *size), 0) for size in ((), (0, 2), (1,)))
    inf = torch.inf
    rows = [[-inf, -inf, 1, 2, inf], [1, inf, -inf, 2, inf], [1, torch.nan, 2, inf, 1], [1e4, -1e4, 0, 1e4, 1e4]]
    yield case(torch.tensor(rows, dtype=dtype), 1)


def searched(dtype: torch.dtype) -> Iterable[Sample]:
    sequence = new(dtype, 7, low=0, high=9).sort()[0]
    for wanted in (torch.cat([sequence, new(dtype, 5)]), new(dtype, 2, 3), new(dtype)):
        yield from (case(sequence, wanted, right=right) for right in (False, True))
    yield case(sequence, sequence, side="right", out_int32=True)
    shuffled = new(dtype, 2, 5)
    lines, sorter = shuffled.sort(-1)
    yield case(lines, new(dtype, 2, 3))
    yield case(shuffled, new(dtype, 2, 3), sorter=sorter, right=True)
    yield from (case(sequence[:n], new(dtype, 4)) for n in (0, 1, 2))
    yield case(sequence, new(torch.float32, 4))
    if dtype.is_floating_point:
        yield from (case(sequence, special(dtype), right=right) for right in (False, True))


def numbers_searched(dtype: torch.dtype) -> Iterable[Sample]:
    sequence = new(dtype, 7, low=0, high=9).sort()[0]
    yield from (case(sequence, number, right=right) for number in (2, 2.5, -1, 100) for right in (False, True))


def swapped(samples: Iterable[Sample]) -> Iterable[Sample]:
    """The arguments of bucketize for those of searchsorted."""
    for (sequence, wanted), kwargs in samples:
        if sequence.ndim == 1 and not {"side", "sorter"} & set(kwargs):
            yield case(wanted, sequence, **kwargs)


def repetitions(dtype: torch.dtype) -> Iterable[Sample]:
    for counts in ([2, 0, 3, 1], [0, 1, 0, 0], [0, 0], [5], []):
        repeats = torch.tensor(counts, dtype=dtype)
        yield case(repeats)
        yield case(repeats, output_size=sum(counts))


def has_ties(call: Call) -> bool:
    """torch may answer with the place of any of several equal elements."""
    return call.args[0].unique().numel() < call.args[0].numel()


def untied(target: Any, info: str, own: Any, dtypes: tuple[torch.dtype, ...] = NUMBERS) -> Row:
    return Row(target, (info,), own, dtypes, skip=has_ties, reason="ties")


ROWS = (
    Row(aten.amax.default, ("amax",), lambda d: reduced(d, none=False)),
    Row(aten.amin.default, ("amin",), lambda d: reduced(d, none=False)),
    Row(prims.amax.default, (), prim_reductions),
    Row(prims.amin.default, (), prim_reductions),
    Row(aten.max.default, ("max.reduction_no_dim",), everything),
    Row(aten.min.default, ("min.reduction_no_dim",), everything),
    Row(aten.aminmax.default, ("aminmax",), both, (*ALL, torch.int16)),
    Row(aten.argmax.default, ("argmax",), placed, NUMBERS),
    Row(aten.argmin.default, ("argmin",), placed, NUMBERS),
    Row(aten.max.dim, ("max.reduction_with_dim",), along),
    Row(aten.min.dim, ("min.reduction_with_dim",), along),
    untied(aten.sort.default, "sort", sorted_, ALL),
    Row(aten.sort.stable, (), stably_sorted),
    untied(aten.topk.default, "topk", top),
    untied(aten.kthvalue.default, "kthvalue", kth),
    untied(aten.median.dim, "median", medians),
    Row(aten.median.default, ("median",), all_medians, NUMBERS),
    untied(aten.nanmedian.dim, "nanmedian", medians),
    Row(aten.nanmedian.default, ("nanmedian",), all_medians, NUMBERS),
    Row(aten.mode.default, (), modes),
    Row(aten.cummax.default, ("cummax",), running),
    Row(aten.cummin.default, ("cummin",), running),
    Row(aten.cumprod.default, ("cumprod",), running_products, units=ROUNDING),
    Row(aten.logcumsumexp.default, ("logcumsumexp",), running_logarithms, FLOATS, SUM),
    Row(aten.searchsorted.Tensor, (), searched, NUMBERS),
    Row(aten.searchsorted.Scalar, (), numbers_searched, NUMBERS),
    Row(aten.bucketize.Tensor, (), lambda d: swapped(searched(d)), NUMBERS),
    Row(aten.bucketize.Scalar, (), lambda d: swapped(numbers_searched(d)), NUMBERS),
    Row(aten.repeat_interleave.Tensor, (), repetitions, (torch.int64, torch.int32)),
)
