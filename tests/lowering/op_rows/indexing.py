"""Indices and tables."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from op_calls import Call

from op_rows.row import FLOATS, SUM, Row, Sample, case, new

aten = torch.ops.aten
prims = torch.ops.prims


def by_index(dtype: torch.dtype) -> Iterable[Sample]:
    x = new(dtype, 3, 4, 5)
    i, j = torch.tensor([0, -1, 2]), torch.tensor([1, -4, 0])
    column = torch.tensor([[0], [-2]])
    for indices in (
        [i],
        [None, i],
        [None, None, column],
        [i, j],
        [None, i, j],
        [i, None, j],
        [column, j],
        [None, column, i],
        [i, j, i],
        [torch.tensor(1), None, i],
        [torch.tensor(-1)],
        [i.to(torch.int32), j.to(torch.int32)],
        [i.to(torch.int32), j],
        [i[:0], j[:0]],
        [None, i[:0]],
        [i, torch.tensor([2])],
    ):
        yield case(x, indices)
    yield case(new(dtype, 0, 4), [None, i])


def is_masked(call: Call) -> bool:
    return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in call.args[1])


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


ROWS = (
    Row(aten.index.Tensor, ("__getitem__",), by_index, skip=is_masked, reason="a mask: its shape depends on values"),
    Row(aten.embedding.default, ("nn.functional.embedding",), embedded, FLOATS),
    Row(aten.embedding_dense_backward.default, ("nn.functional.embedding",), table_gradients, FLOATS, SUM),
)
