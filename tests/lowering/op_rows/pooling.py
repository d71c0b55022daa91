"""Pooling."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from op_rows.row import FLOATS, HALF, ROUNDING, Row, Sample, case, new

aten = torch.ops.aten

WINDOWS = (
    # size, kernel, stride, padding, dilation, ceil mode
    ((6, 7), [2, 3], [], [0, 0], [1, 1], False),
    ((6, 7), [3], [2], [1], [1], True),
    ((7, 6), [3, 2], [3, 4], [1, 1], [2, 3], True),
    ((5, 5), [2], [3], [0], [1], True),
    ((8, 6), [3, 3], [1, 2], [1, 0], [2, 2], False),
)


def awkward(dtype: torch.dtype, *shape: int) -> Tensor:
    """Many ties; NaN and infinities of both signs in the second channel, NaN in all of the third."""
    x = torch.randint(3, shape).to(dtype)
    if dtype.is_floating_point and x.numel():
        flat = x.flatten(-2)
        flat[..., 1, ::3] = -torch.inf
        flat[..., 1, 5::7] = torch.nan
        flat[..., 1, 4::11] = torch.inf
        flat[..., 2, :] = torch.nan
        flat[..., 3, :] = -torch.inf
    return x


def max_pooled(dtype: torch.dtype, rank: int) -> Iterable[Sample]:
    for size, kernel, stride, padding, dilation, ceil_mode in WINDOWS:
        geometry = (deeper(kernel, 2), deeper(stride, 2), deeper(padding, 0), deeper(dilation, 1))
        if rank == 2:
            geometry = (kernel, stride, padding, dilation)
        yield case(awkward(dtype, 2, 4, *[4] * (rank - 2), *size), *geometry, ceil_mode)
    yield case(awkward(dtype, 4, *[4] * rank), [2])
    yield case(new(dtype, 0, 2, *[4] * rank), [2])


def deeper(numbers: list[int], first: int) -> list[int]:
    """Numbers for height and width, with one for the depth before them."""
    return [first, *(numbers * 2)[:2]] if numbers else []


def max_pool_gradients(dtype: torch.dtype, rank: int) -> Iterable[Sample]:
    pool = aten.max_pool2d_with_indices.default if rank == 2 else aten.max_pool3d_with_indices.default
    for (x, *geometry), _ in max_pooled(dtype, rank):
        values, indices = pool(x, *geometry)
        rest = [*geometry, *[[], [0], [1], False][len(geometry) - 1 :]]
        yield case(new(dtype, *values.shape), x, *rest, indices)


SIZES = (((6, 7), [3, 4]), ((6, 8), [3, 2]), ((3, 4), [5, 7]), ((7, 5), [1, 1]))


def adaptively_max_pooled(dtype: torch.dtype, rank: int) -> Iterable[Sample]:
    for size, steps in SIZES:
        yield case(awkward(dtype, 2, 4, *[5] * (rank - 2), *size), [2] * (rank - 2) + steps)
    yield case(awkward(dtype, 4, *[5] * rank), [2] * rank)
    yield case(new(dtype, 0, 4, *[5] * rank), [2] * rank)


def adaptive_max_pool_gradients(dtype: torch.dtype, rank: int) -> Iterable[Sample]:
    pool = aten.adaptive_max_pool2d.default if rank == 2 else aten.adaptive_max_pool3d.default
    for (x, steps), _ in adaptively_max_pooled(dtype, rank):
        values, indices = pool(x, steps)
        yield case(new(dtype, *values.shape), x, indices)


MEANS = (
    # size, kernel, stride, padding, ceil mode, count include pad, divisor
    ((6, 7), [2, 3], [], [0], False, True, None),
    ((6, 7), [3], [2], [1], True, True, None),
    ((7, 6), [3, 2], [3, 3], [1, 1], True, False, None),
    ((7, 6), [3, 2], [2, 3], [1, 1], False, False, 5),
    ((7, 6), [3, 2], [2, 1], [1, 1], False, True, 5),
    ((5, 5), [2], [3], [0], True, True, 3),
    ((5, 6), [3], [4], [1], True, True, -2),
)


def averaged(dtype: torch.dtype, rank: int) -> Iterable[Sample]:
    for size, kernel, stride, padding, *rest in MEANS:
        geometry = (kernel, stride, padding)
        if rank == 3:
            geometry = (deeper(kernel, 2), deeper(stride, 2), deeper(padding, 0))
        yield case(new(dtype, 2, 3, *[5] * (rank - 2), *size), *geometry, *rest)
    yield case(new(dtype, 3, *[4] * rank), [2] * rank)
    yield case(new(dtype, 0, 3, *[4] * rank), [2] * rank)
    x = new(dtype, 1, 1, *[4] * rank)
    x[..., 0, 0], x[..., 2, 2] = torch.nan, torch.inf
    yield case(x, [2] * rank, [1], [1])


def average_gradients(dtype: torch.dtype, rank: int) -> Iterable[Sample]:
    pool = aten.avg_pool2d.default if rank == 2 else aten.avg_pool3d.default
    for (x, *geometry), _ in averaged(dtype, rank):
        rest = [*geometry, *[[], [0], False, True, None][len(geometry) - 1 :]]
        yield case(new(dtype, *pool(x, *rest).shape), x, *rest)


def adaptively_averaged(dtype: torch.dtype, rank: int) -> Iterable[Sample]:
    for size, steps in SIZES:
        yield case(new(dtype, 2, 3, *[5] * (rank - 2), *size), [2] * (rank - 2) + steps)
    yield case(new(dtype, 3, *[5] * rank), [2] * rank)
    yield case(new(dtype, 0, 3, *[5] * rank), [2] * rank)
    x = new(dtype, 1, 2, *[5] * rank)
    x[..., 1, 1], x[..., 3, 3] = torch.nan, torch.inf
    yield case(x, [3] * rank)


def adaptive_average_gradients(dtype: torch.dtype, rank: int) -> Iterable[Sample]:
    for (x, steps), _ in adaptively_averaged(dtype, rank):
        yield case(new(dtype, *x.shape[:-rank], *steps), x)


def unpooled(dtype: torch.dtype, rank: int) -> Iterable[Sample]:
    pool = aten.max_pool2d_with_indices.default if rank == 2 else aten.max_pool3d_with_indices.default
    stride = [] if rank == 2 else [[2] * rank, [0] * rank]
    for shape in ((2, 3, *[4] * rank), (3, *[5] * rank), (0, 2, *[4] * rank)):
        values, indices = pool(torch.randn(shape), [2])
        yield case(values.to(dtype), indices, [5] * rank, *stride)
    values, indices = pool(torch.randn(1, 1, *[4] * rank), [3], [1])
    yield case(torch.ones_like(values).to(dtype), indices, [4] * rank, *stride)


POOLED = (*FLOATS, torch.int32, torch.uint8)
AVERAGED = (torch.float32, *HALF)
"""ONNX Runtime's CPU provider averages no float64, torch in three dimensions no half precision."""

ROWS = (
    Row(aten.max_pool2d_with_indices.default, (), lambda d: max_pooled(d, 2), POOLED),
    Row(aten.max_pool3d_with_indices.default, (), lambda d: max_pooled(d, 3), POOLED),
    Row(aten.max_pool2d_with_indices_backward.default, (), lambda d: max_pool_gradients(d, 2), FLOATS, ROUNDING),
    Row(aten.max_pool3d_with_indices_backward.default, (), lambda d: max_pool_gradients(d, 3), FLOATS, ROUNDING),
    Row(aten.adaptive_max_pool2d.default, (), lambda d: adaptively_max_pooled(d, 2), FLOATS),
    Row(aten.adaptive_max_pool3d.default, (), lambda d: adaptively_max_pooled(d, 3), FLOATS),
    Row(aten.adaptive_max_pool2d_backward.default, (), lambda d: adaptive_max_pool_gradients(d, 2), FLOATS, ROUNDING),
    Row(aten.adaptive_max_pool3d_backward.default, (), lambda d: adaptive_max_pool_gradients(d, 3), FLOATS, ROUNDING),
    Row(aten.max_unpool2d.default, (), lambda d: unpooled(d, 2), FLOATS),
    Row(aten.max_unpool3d.default, (), lambda d: unpooled(d, 3), FLOATS),
    Row(aten.avg_pool2d.default, (), lambda d: averaged(d, 2), AVERAGED, ROUNDING),
    Row(aten.avg_pool3d.default, (), lambda d: averaged(d, 3), AVERAGED[:1], ROUNDING),
    Row(aten.avg_pool2d_backward.default, (), lambda d: average_gradients(d, 2), AVERAGED, ROUNDING),
    Row(aten.avg_pool3d_backward.default, (), lambda d: average_gradients(d, 3), AVERAGED[:1], ROUNDING),
    Row(aten._adaptive_avg_pool2d.default, (), lambda d: adaptively_averaged(d, 2), AVERAGED, ROUNDING),
    Row(aten._adaptive_avg_pool3d.default, (), lambda d: adaptively_averaged(d, 3), AVERAGED, ROUNDING),
    Row(aten._adaptive_avg_pool2d_backward.default, (), lambda d: adaptive_average_gradients(d, 2), FLOATS, ROUNDING),
    Row(aten._adaptive_avg_pool3d_backward.default, (), lambda d: adaptive_average_gradients(d, 3), FLOATS, ROUNDING),
)
