"""Data movement."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from op_rows.row import Row, Sample, case, new

aten = torch.ops.aten
prims = torch.ops.prims


def views(dtype: torch.dtype) -> Iterable[Sample]:
    for shape, size in (
        ((2, 3), [6]),
        ((2, 3), [-1, 2]),
        ((), [1, 1]),
        ((1,), []),
        ((0, 3), [3, 0]),
        ((2, 0), [0, 5]),
        ((2, 0, 3), [2, -1, 3]),
    ):
        yield case(new(dtype, *shape), size)


def expansions(dtype: torch.dtype) -> Iterable[Sample]:
    for shape, size in (
        ((3, 1), [3, 4]),
        ((3, 1), [-1, 4]),
        ((3,), [2, -1]),
        ((), [2, 3]),
        ((), []),
        ((1, 3), [0, 3]),
        ((0, 1), [-1, 2]),
        ((1,), [1]),
    ):
        yield case(new(dtype, *shape), size)


def broadcasts(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 2, 3), [2, 4, 3], [0, 2])
    yield case(new(dtype, 2, 1), [2, 3], [0, 1])
    yield case(new(dtype), [2, 1], [])


def squeezed(dtype: torch.dtype, *dims: Any) -> Iterable[Sample]:
    yield from (case(new(dtype, 1, 3, 1), dim) for dim in dims)
    yield from (case(new(dtype), dim) for dim in dims[:1])


def joined(dtype: torch.dtype) -> Iterable[Sample]:
    x, y = new(dtype, 2, 3), new(dtype, 2, 3)
    yield from (case([x, y], dim) for dim in (0, 1, -1))
    yield case([x, new(dtype, 0), y], 1)
    yield case([new(dtype, 0), new(dtype, 0)])
    yield case([x])
    yield case([x, new(dtype, 2, 0)], 1)
    yield from (case([x, new(other, 1, 3)]) for other in (torch.float32, torch.int64, torch.bool))
    yield case([new(torch.float64, 0), x])
    yield case([x, x])


def slices(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 5, 3))
    for start, end, step in SLICES:
        yield from (case(new(dtype, 5, 5), dim, start, end, step) for dim in (0, -1))


SLICES = (
    (1, 3, 1),
    (None, 4, 2),
    (1, None, 3),
    (-2, 2**63 - 1, 1),
    (-5, -1, 2),
    (-9, 9, 2),
    (3, 1, 1),
    (7, 9, 1),
    (4, 5, 5),
    (0, 5, 7),
)


def slice_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for start, end, step in SLICES:
        first, last = start or 0, 2**63 - 1 if end is None else end
        for dim in (0, -1):
            grad = aten.slice.Tensor(new(dtype, 5, 5), dim, start, end, step)
            yield case(grad, [5, 5], dim, first, last, step)
    yield case(new(dtype, 0, 2), [0, 2], 0, 0, 2**63 - 1, 1)


def picked(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3), *place) for place in ((0, 1), (1, -1), (-1, 2), (-2, -2)))
    yield case(new(dtype, 3), 0, 1)


def pick_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 3), [2, 3], 0, index) for index in (0, 1, -1, -2))
    yield case(new(dtype, 2), [2, 3], -1, -1)
    yield case(new(dtype), [3], 0, 1)


def parts(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 5, 4), size, dim) for size, dim in ((2, 0), (2, 1), (3, -1), (9, 0), (1, 1)))
    yield case(new(dtype, 0, 4), 2)


def sized_parts(dtype: torch.dtype) -> Iterable[Sample]:
    for sizes, dim in (([2, 3], 0), ([1, 0, 3], -1), ([5], 0), ([1, 1, 2], 1)):
        yield case(new(dtype, 5, 4), sizes, dim)


def triangles(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 4, 5), diagonal) for diagonal in (0, 1, -2, 9, -9))
    yield case(new(dtype, 2, 3, 3))
    yield case(new(dtype, 0, 3))


ROWS = (
    Row(aten.view.default, ("view",), views),
    Row(aten._unsafe_view.default, (), views),
    Row(aten.reshape.default, (), views),
    Row(prims.reshape.default, (), lambda d: (c for c in views(d) if c[0][1] and -1 not in c[0][1])),
    Row(aten.unsqueeze.default, ("unsqueeze",), lambda d: (case(new(d, 2, 3), i) for i in (0, 1, 2, -1, -3))),
    Row(aten.squeeze.dim, ("squeeze",), lambda d: squeezed(d, 0, 1, -1)),
    Row(aten.squeeze.dims, ("squeeze.multiple",), lambda d: squeezed(d, [0], [0, 2], [1], [-1, 0], [])),
    Row(prims.squeeze.default, (), lambda d: (case(new(d, 1, 3, 1), dims) for dims in ([0], [0, 2], []))),
    Row(aten.t.default, ("t",), lambda d: (case(new(d, *size)) for size in ((2, 3), (3,), (), (0, 2)))),
    Row(aten.transpose.int, ("transpose",), lambda d: (case(new(d, 2, 3, 4), *p) for p in ((0, 1), (-1, 0), (1, 1)))),
    Row(aten.permute.default, ("permute",), lambda d: (case(new(d, 2, 3, 0), p) for p in ([0, 2, 1], [-1, 0, 1]))),
    Row(prims.transpose.default, (), lambda d: (case(new(d, 2, 3, 0), p) for p in ([0, 2, 1], [2, 0, 1]))),
    Row(aten.expand.default, ("expand",), expansions),
    Row(prims.broadcast_in_dim.default, (), broadcasts),
    Row(aten.cat.default, ("cat",), joined),
    Row(prims.cat.default, (), lambda d: (case([new(d, 2, 3), new(d, 2, n)], 1) for n in (0, 3))),
    Row(aten.slice.Tensor, ("__getitem__",), slices),
    Row(aten.slice_copy.Tensor, (), slices),
    Row(aten.select.int, ("select",), picked),
    Row(aten.select_copy.int, (), picked),
    Row(aten.slice_backward.default, ("__getitem__",), slice_gradients),
    Row(aten.select_backward.default, ("select",), pick_gradients),
    Row(aten.split.Tensor, ("split",), parts),
    Row(aten.split_copy.Tensor, (), parts),
    Row(aten.split_with_sizes.default, ("split_with_sizes",), sized_parts),
    Row(aten.tril.default, ("tril",), triangles),
    Row(aten.triu.default, ("triu",), triangles),
)
