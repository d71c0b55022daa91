"""Indices and tables."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from op_rows.row import FLOATS, SUM, Row, Sample, case, new, special

aten = torch.ops.aten
prims = torch.ops.prims


def element_indices(i: Tensor, j: Tensor) -> list[list[Tensor | None]]:
    """What indexes a tensor of shape (3, 4, 5): ``i`` and ``j``, vectors of equal length, in every place and form."""
    column = torch.tensor([[0], [-2]])
    return [
        [i],
        [None, i],
        [None, None, column],
        [i, j],
        [None, i, j],
        [i, None, j],
        [column, j],
        [None, column, j],
        [i, j, i],
        [torch.tensor(1), None, i],
        [torch.tensor(-1)],
        [i.to(torch.int32), j.to(torch.int32)],
        [i.to(torch.int32), j],
        [i[:0], j[:0]],
        [None, i[:0]],
        [i, torch.tensor([2])],
    ]


def by_index(dtype: torch.dtype) -> Iterable[Sample]:
    x = new(dtype, 3, 4, 5)
    for indices in element_indices(torch.tensor([0, -1, 2]), torch.tensor([1, -4, 0])):
        yield case(x, indices)
    yield case(new(dtype, 0, 4), [None, torch.tensor([0, -1])])


def by_mask(dtype: torch.dtype) -> Iterable[Sample]:
    x = new(dtype, 3, 4, 5)
    rows, columns = torch.tensor([True, False, True]), torch.tensor([False, True, True, False])
    plane = torch.tensor([[True, False, True, True]] * 3)
    i, j = torch.tensor([0, -1]), torch.tensor([1, -4])
    for indices in (
        [rows],
        [None, columns],
        [plane],
        [None, torch.ones(4, 5, dtype=torch.bool)],
        [rows, columns],
        [rows, None, i],
        [rows, j],
        [plane, torch.tensor([2])],
        [torch.zeros(3, dtype=torch.bool)],
    ):
        yield case(x, indices)


def gathered(dtype: torch.dtype) -> Iterable[Sample]:
    x = new(dtype, 3, 4)
    yield case(x, 0, torch.tensor([[2, 0, 0, 1]]))
    yield case(x, -1, torch.tensor([[3, 3, 0], [1, 2, 0]]))
    yield case(x, 1, torch.zeros(3, 6, dtype=torch.int64))
    yield case(x, 1, torch.zeros(3, 0, dtype=torch.int64))
    yield case(x, 0, torch.zeros(0, dtype=torch.int64))
    yield case(new(dtype), 0, torch.tensor(0))
    yield case(new(dtype, 3), 0, torch.tensor(2))
    yield case(new(dtype), -1, torch.tensor([0, 0]))


def selected(dtype: torch.dtype) -> Iterable[Sample]:
    x = new(dtype, 3, 4)
    yield from (case(x, dim, torch.tensor([2, 0, 2])) for dim in (0, 1, -1))
    yield case(x, 1, torch.tensor(3))
    yield case(x, 0, torch.tensor([], dtype=torch.int64))
    yield case(x, 0, torch.tensor([1], dtype=torch.int32))
    yield case(new(dtype), 0, torch.tensor([0]))


def taken(dtype: torch.dtype) -> Iterable[Sample]:
    x = new(dtype, 3, 4)
    yield from (case(x, torch.tensor(index)) for index in (5, [0, -1, 11], [[-12, 3]]))
    yield case(x, torch.zeros(2, 0, dtype=torch.int64))
    yield case(new(dtype), torch.tensor([0, -1]))


def masks(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *size, low=0, high=2)) for size in ((3, 4), (5,), (), (0, 2), (2, 0)))
    yield case(torch.ones((), dtype=dtype))
    yield case(torch.zeros(3, 2, dtype=dtype))
    yield case(special(dtype))


def selections(dtype: torch.dtype) -> Iterable[Sample]:
    x, mask = new(dtype, 3, 4), new(torch.bool, 3, 4)
    yield from ((case(x, mask)), case(x, mask[0]), case(x[:, :1], mask), case(x, torch.zeros_like(mask)))
    yield from (case(new(dtype), torch.tensor(b)) for b in (False, True))
    yield case(new(dtype, 2, 0), torch.tensor(True))


def mask_writes(dtype: torch.dtype) -> Iterable[Sample]:
    x, mask = new(dtype, 3, 4), new(torch.bool, 3, 4)
    yield from (case(x, m, new(dtype, 14)) for m in (mask, mask[:1], mask[:, :1], torch.tensor(True)))
    yield case(x, torch.ones_like(mask), new(dtype, 3, 4))
    yield case(x, mask, new(dtype, int(mask.sum())))
    yield case(x, torch.zeros_like(mask), new(dtype, 0))
    yield case(new(dtype), torch.tensor(True), new(dtype, 2))


def mask_write_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    grad, mask = new(dtype, 3, 4), new(torch.bool, 3, 4)
    yield from (case(grad, m, [20]) for m in (mask, torch.zeros_like(mask), torch.ones_like(mask)))
    yield case(grad, mask, [3, 4])


def embedded(dtype: torch.dtype) -> Iterable[Sample]:
    table = new(dtype, 5, 3)
    yield from (case(table, torch.tensor(index)) for index in (2, [4, 0, 4], [[0, 1], [2, 2]]))
    yield case(table, torch.tensor([1, 3], dtype=torch.int32), 1)
    yield case(table, torch.zeros(0, 2, dtype=torch.int64))


def table_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    repeated = torch.tensor([[0, 3, 3], [3, 1, 0]])
    for padding in (-1, 3, 0):
        yield from (case(new(dtype, 2, 3, 4), repeated, 5, padding, by_frequency) for by_frequency in (False, True))
    yield case(new(dtype, 4), torch.tensor(1), 5, -1, False)
    yield case(new(dtype, 0, 4), torch.zeros(0, dtype=torch.int64), 5, -1, False)
    yield case(new(dtype, 3, 4), repeated[0].to(torch.int32), 5, -1, False)
    yield case(new(dtype, 500, 2), torch.randint(3, (500,)), 3, -1, False)


def first_places(dtype: torch.dtype) -> Iterable[Sample]:
    x = torch.tensor([[0, 1, 1], [1, 0, 0]], dtype=dtype)
    for size in (0, 2, 5):
        yield from (case(each, size=size) for each in (x, x[0], x[0, 1], x[:0]))
        yield case(x, size=size, fill_value=7)


ROWS = (
    Row(aten.index.Tensor, ("__getitem__",), lambda d: (*by_index(d), *by_mask(d))),
    Row(aten._unsafe_index.Tensor, (), by_index),
    Row(aten.gather.default, ("gather",), gathered),
    Row(aten.index_select.default, ("index_select",), selected),
    Row(aten.take.default, ("take",), taken),
    Row(aten.nonzero.default, ("nonzero",), masks),
    Row(aten.nonzero_static.default, ("nonzero_static",), first_places),
    Row(aten.masked_select.default, ("masked_select",), selections),
    Row(aten.masked_scatter.default, ("masked_scatter",), mask_writes),
    Row(aten.masked_scatter_backward.default, (), mask_write_gradients, FLOATS),
    Row(aten.embedding.default, ("nn.functional.embedding",), embedded, FLOATS),
    Row(aten.embedding_dense_backward.default, ("nn.functional.embedding",), table_gradients, FLOATS, SUM),
)
