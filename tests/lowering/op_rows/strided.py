"""Views by strides and diagonals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from op_rows.row import ALL, Row, Sample, case, new

aten = torch.ops.aten
prims = torch.ops.prims

VIEWS: tuple[tuple[Any, ...], ...] = (
    ([2, 3], [3, 1], 0),
    ([3, 2], [1, 3], 0),
    ([4], [5], 1),
    ([2, 2, 2], [1, 1, 1], 3),
    ([3, 4], [0, 1], 2),
    ([], [], 5),
    ([0, 3], [3, 1], 0),
    ([24], [1], 0),
)


def dense(dtype: torch.dtype) -> Iterable[Tensor]:
    yield new(dtype, 2, 3, 4)
    yield new(dtype, 4, 3, 2).permute(2, 1, 0)
    yield new(dtype, 3, 2, 4).transpose(0, 1)
    yield new(dtype, 2, 12, 1).transpose(0, 2)


def strided(dtype: torch.dtype) -> Iterable[Sample]:
    first, *others = dense(dtype)
    yield from (case(first, *view) for view in VIEWS)
    yield from (case(x, *VIEWS[i]) for x in others for i in (0, 1, 3))
    yield case(new(dtype), [3], [0], 0)


def strided_by_default(dtype: torch.dtype) -> Iterable[Sample]:
    yield from strided(dtype)
    yield from (case(new(dtype, 4, 6), *view) for view in (([2, 2], [2, 3]), ([], [])))


def strided_writes(dtype: torch.dtype) -> Iterable[Sample]:
    """Views that name no element twice."""
    for x in dense(dtype):
        yield from (case(x, new(dtype, *VIEWS[i][0]), *VIEWS[i]) for i in (0, 1, 2, 6))


def diagonals(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 3, 4), offset) for offset in (0, 1, 3, 4, 9, -1, -2, -3, -9))
    yield from (case(new(dtype, 2, 3, 4), offset, *dims) for offset in (0, -1) for dims in ((0, 1), (2, 0), (-1, -2)))
    yield case(new(dtype, 0, 4))
    yield case(new(dtype, 3, 3, 0), 0, 0, 1)


def diagonal_writes(dtype: torch.dtype) -> Iterable[Sample]:
    for args, _ in diagonals(dtype):
        yield case(args[0], new(dtype, *aten.diagonal.default(*args).shape), *args[1:])


def diagonal_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for (x, *rest), _ in diagonals(dtype):
        offset, dim1, dim2 = [*rest, *(0, 0, 1)[len(rest) :]]
        yield case(new(dtype, *aten.diagonal.default(x, *rest).shape), list(x.shape), offset, dim1, dim2)


def embedded_diagonals(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 3), offset) for offset in (0, 1, -2))
    yield from (case(new(dtype, 2, 3), 1, *dims) for dims in ((-2, -1), (0, 2), (2, 0), (1, 0)))
    yield case(new(dtype, 0))
    yield case(new(dtype, 2, 0), 2)


ROWS = (
    Row(aten.as_strided.default, ("as_strided",), strided_by_default),
    Row(aten.as_strided_copy.default, ("as_strided_copy",), strided_by_default),
    Row(prims.as_strided.default, (), lambda d: (c for c in strided(d) if c[0][1])),
    Row(aten.as_strided_scatter.default, ("as_strided_scatter",), strided_writes),
    Row(prims.as_strided_scatter.default, (), strided_writes),
    Row(aten.diagonal.default, ("diagonal",), diagonals),
    Row(aten.diagonal_copy.default, ("diagonal_copy",), diagonals),
    Row(aten.diagonal_scatter.default, ("diagonal_scatter",), diagonal_writes),
    Row(aten.diagonal_backward.default, ("diagonal",), diagonal_gradients, ALL),
    Row(aten.diag_embed.default, ("diag_embed",), embedded_diagonals),
)
