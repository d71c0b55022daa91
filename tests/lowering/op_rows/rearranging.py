"""Elements in another order, repeated, in windows, and slices replaced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from op_rows.row import FLOATS, SUM, Row, Sample, case, new
from op_rows.shape import SLICES

aten = torch.ops.aten
prims = torch.ops.prims

SIZES = ((2, 3), (0, 3), (3, 0))


def flips(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3, 4), dims) for dims in ([0], [1, 2], [], [0, 1, 2]))
    yield case(new(dtype, 0, 3), [0])
    yield case(new(dtype), [])


def negative_flips(dtype: torch.dtype) -> Iterable[Sample]:
    yield from flips(dtype)
    yield case(new(dtype, 2, 3, 4), [-1, 0])
    yield case(new(dtype), [0])


def rolls(dtype: torch.dtype) -> Iterable[Sample]:
    x = new(dtype, 3, 4)
    yield from (case(x, [shift], dims) for shift in (0, -1, 7, 12) for dims in ([], [0], [-1]))
    yield case(x, [1, -2], [0, 1])
    yield case(x, [1, 1], [0, 0])
    yield from (case(new(dtype, *size), [1], [0]) for size in SIZES)
    yield case(new(dtype), [3])


def repeats(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3), times) for times in ([1, 1], [2, 3], [2, 1, 2], [0, 2], [3, 1, 1, 1]))
    yield from (case(new(dtype), times) for times in ([], [3], [2, 2], [0]))
    yield case(new(dtype, 0, 3), [2, 2])


def windows(dtype: torch.dtype) -> Iterable[tuple[list[int], int, int, int]]:
    yield from (([5, 3], 0, size, step) for size, step in ((2, 1), (2, 2), (1, 3), (5, 1), (3, 1), (2, 4), (0, 2)))
    yield [2, 6, 3], -2, 3, 2
    yield [2, 6], 1, 2, 1


def unfolded(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *shape), dim, size, step) for shape, dim, size, step in windows(dtype))
    yield from (case(new(dtype), 0, size, 1) for size in (0, 1))
    yield case(new(dtype, 0, 3), 1, 2, 1)


def unfold_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for shape, dim, size, step in windows(dtype):
        grad = new(dtype, *torch.empty(shape).unfold(dim, size, step).shape)
        yield case(grad, shape, dim % len(shape), size, step)
    yield case(new(dtype, 1, 3, 4), [2, 10], 1, 4, 3)


def elements_replaced(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3), new(dtype, 3), 0, index) for index in (0, 1, -1, -2))
    yield from (case(new(dtype, 2, 3), new(dtype, 2), -1, index) for index in (0, 1, 2, -3))
    yield case(new(dtype, 1), new(dtype), 0, 0)


def slices_replaced(dtype: torch.dtype) -> Iterable[Sample]:
    for start, end, step in SLICES:
        for dim in (0, -1):
            src = aten.slice.Tensor(new(dtype, 5, 5), dim, start, end, step)
            yield case(new(dtype, 5, 5), src, dim, start, end, step)
    yield case(new(dtype, 5, 3), new(dtype, 5, 3))


def collapsed(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3, 4), *ends) for ends in ((0, 1), (1, 2), (0, 2), (1, 1)))
    yield case(new(dtype, 2, 0, 4), 0, 1)


def split(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 6, 4), *place) for place in ((0, 3), (1, 1), (1, 4)))


def nothing_set(dtype: torch.dtype, *more: Any, **kwargs: Any) -> Iterable[Sample]:
    """Of tensors without elements there is nothing to compare."""
    yield case([0, 3], *more, dtype=dtype, **kwargs)


def like_nothing(dtype: torch.dtype, *more: Any) -> Iterable[Sample]:
    yield case(new(dtype, 0, 3), *more)


ON_CPU = {"device": torch.device("cpu"), "requires_grad": False}

ROWS = (
    Row(aten.flip.default, ("flip",), negative_flips),
    Row(prims.rev.default, (), flips),
    Row(aten.roll.default, ("roll",), rolls),
    Row(aten.repeat.default, ("repeat",), repeats),
    Row(aten.unfold.default, ("unfold",), unfolded),
    Row(aten.unfold_copy.default, ("unfold_copy",), unfolded),
    Row(aten.unfold_backward.default, ("unfold",), unfold_gradients, FLOATS, SUM),
    Row(aten.select_scatter.default, ("select_scatter",), elements_replaced),
    Row(aten.slice_scatter.default, ("slice_scatter",), slices_replaced),
    Row(prims.collapse.default, (), collapsed),
    Row(prims.collapse_view.default, (), collapsed),
    Row(prims.split_dim.default, (), split),
    Row(aten.empty.memory_format, (), nothing_set),
    Row(aten.empty_permuted.default, (), lambda d: nothing_set(d, [1, 0])),
    Row(aten.empty_strided.default, (), lambda d: nothing_set(d, [3, 1])),
    Row(prims.empty.default, (), lambda d: nothing_set(d, **ON_CPU)),
    Row(prims.empty_permuted.default, (), lambda d: nothing_set(d, [1, 0], **ON_CPU)),
    Row(prims.empty_strided.default, (), lambda d: nothing_set(d, [3, 1], **ON_CPU)),
    Row(aten.new_empty.default, (), lambda d: like_nothing(d, [2, 0])),
    Row(aten.new_empty_strided.default, (), lambda d: like_nothing(d, [2, 0], [1, 1])),
    Row(aten.empty_like.default, (), like_nothing),
)
