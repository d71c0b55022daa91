"""Distances between rows, and log-softmax, which losses are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from op_rows.row import FLOATS, SUM, Row, Sample, case, new

aten = torch.ops.aten

SINGLE = (torch.float32, torch.float64)
NORMS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf)


def pairs(dtype: torch.dtype) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """The first two have equal rows."""
    x = new(dtype, 3, 4)
    yield x, torch.cat([x[1:2], new(dtype, 2, 4)])
    yield new(dtype, 2, 3, 4), new(dtype, 2, 5, 4)
    yield x, new(dtype, 0, 4)
    yield new(dtype, 3, 0), new(dtype, 2, 0)
    yield new(dtype, 2, 1, 3, 4), new(dtype, 2, 2, 4)


def with_nan(dtype: torch.dtype) -> torch.Tensor:
    """The first row has NaN and an infinity, the second nothing but NaN."""
    x = new(dtype, 3, 3)
    x[0, 1], x[0, 2], x[1] = math.nan, math.inf, math.nan
    return x


def distances(dtype: torch.dtype) -> Iterable[Sample]:
    for x, y in pairs(dtype):
        yield from (case(x, y, p, None) for p in NORMS)
    yield from (case(new(dtype, 30, 2), new(dtype, 3, 2), 2.0, mode) for mode in (0, 1, 2))
    yield from (case(with_nan(dtype), new(dtype, 4, 3), p, None) for p in NORMS)


def distance_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for x, y in pairs(dtype):
        for p in NORMS:
            distance = aten._cdist_forward.default(x, y, p, None)
            yield case(new(dtype, *distance.shape), x, y, p, distance)


def rows(dtype: torch.dtype) -> Iterable[torch.Tensor]:
    x = new(dtype, 4, 3)
    x[2] = x[0]
    yield from (x, new(dtype, 2, 5), new(dtype, 1, 3), new(dtype, 3, 0))


def own_distances(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(x, p) for x in (*rows(dtype), with_nan(dtype)) for p in NORMS)


def own_distance_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for x in rows(dtype):
        for p in NORMS:
            distance = aten._pdist_forward.default(x, p)
            yield case(new(dtype, *distance.shape), x, p, distance)


def log_softmax_inputs(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3, 5), dim, False) for dim in (0, 1, -1))
    yield case(new(dtype), 0, False)
    yield case(new(dtype, 0, 3), 1, False)
    yield case(torch.tensor([[1.0, -torch.inf], [-torch.inf] * 2, [torch.inf, 1], [6e4, -6e4]], dtype=dtype), 1, False)


def log_softmax_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for args, _ in log_softmax_inputs(dtype):
        y = aten._log_softmax.default(*args)
        yield case(new(dtype, *y.shape), y, args[1], dtype)


ROWS = (
    Row(aten._cdist_forward.default, (), distances, SINGLE, SUM),
    Row(aten._cdist_backward.default, (), distance_gradients, SINGLE, SUM, scale=1),
    Row(aten._pdist_forward.default, (), own_distances, SINGLE, SUM),
    Row(aten._pdist_backward.default, (), own_distance_gradients, SINGLE, SUM, scale=1),
    Row(aten._log_softmax.default, ("log_softmax",), log_softmax_inputs, FLOATS, SUM),
    Row(aten._log_softmax_backward_data.default, ("log_softmax",), log_softmax_gradients, FLOATS, SUM, scale=1),
)
