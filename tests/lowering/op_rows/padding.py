"""Borders."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from op_rows.row import FLOATS, SUM, Row, Sample, case, new, special

aten = torch.ops.aten


def padded(dtype: torch.dtype) -> Iterable[Sample]:
    for pad, value in (
        ([1, 2], 0),
        ([1, 0, 0, 2], 3),
        ([0, -1, 2, -2], 1),
        ([-3, -1], 1),
        ([0, 0, 0, 0, 1, 1], 2),
        ([], 1),
    ):
        yield case(new(dtype, 2, 3, 5), pad, value)
    yield case(special(dtype), [1, 1])
    yield case(new(dtype, 0, 2), [1, 1, 2, 0])
    if dtype.is_floating_point:
        yield case(new(dtype, 3), [1, 1], -torch.inf)


PADDINGS = ([1, 2], [2, 0, 1, 1], [1, 2, 0, 1, 2, 1])


def bordered(dtype: torch.dtype, rank: int, *, cut: bool = True) -> Iterable[Sample]:
    padding = PADDINGS[rank - 1]
    yield case(new(dtype, 2, 2, *[4] * rank), padding)
    yield case(new(dtype, 2, *[3] * rank), padding)
    if cut:
        yield case(new(dtype, 2, 2, *[5] * rank), [-1, 2, *padding[2:]])


def border_gradients(dtype: torch.dtype, rank: int, pad: torch._ops.OpOverload) -> Iterable[Sample]:
    for (x, padding), _ in bordered(dtype, rank):
        yield case(new(dtype, *pad(x, padding).shape), x, padding)


def border_rows() -> Iterable[Row]:
    for kind in ("reflection", "replication"):
        for rank in (1, 2, 3):
            pad = getattr(aten, f"{kind}_pad{rank}d").default
            backward = getattr(aten, f"{kind}_pad{rank}d_backward").default
            yield Row(pad, (), lambda d, rank=rank: bordered(d, rank), FLOATS)
            yield Row(backward, (), lambda d, rank=rank, pad=pad: border_gradients(d, rank, pad), FLOATS, SUM)


ROWS = (Row(aten.constant_pad_nd.default, ("constant_pad_nd",), padded), *border_rows())
