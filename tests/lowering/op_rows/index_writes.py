"""Elements and slices written where vectors of indices say."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from op_rows.indexing import element_indices
from op_rows.row import ALL, FLOATS, INTS, SUM, Row, Sample, case, new

aten = torch.ops.aten


def put(dtype: torch.dtype, *, accumulate: bool) -> Iterable[Sample]:
    x = new(dtype, 3, 4, 5)
    i, j = torch.tensor([0, -1, 1]), torch.tensor([1, -4, 0])
    for indices in element_indices(i, j):
        picked = aten.index.Tensor(x, [k if k is None else k.long() for k in indices])
        yield case(x, indices, new(dtype, *picked.shape), accumulate)
    yield case(x, [None, i, j], new(dtype), accumulate)
    yield case(x, [None, i], new(dtype, 3, 1), accumulate)
    yield case(new(dtype, 0, 4), [None, i], new(dtype), accumulate)


def put_by_mask(dtype: torch.dtype, *, accumulate: bool) -> Iterable[Sample]:
    x = new(dtype, 3, 4, 5)
    rows, columns = torch.tensor([True, False, True]), torch.tensor([False, True, True, False])
    plane = torch.tensor([[True, False, True, True]] * 3)
    for indices in (
        [rows],
        [None, columns],
        [plane],
        [None, torch.ones(4, 5, dtype=torch.bool)],
        [rows, columns],
        [rows, None, torch.tensor([0, -1])],
        [torch.zeros(3, dtype=torch.bool)],
    ):
        picked = x[tuple(slice(None) if k is None else k for k in indices)]
        yield case(x, indices, new(dtype, *picked.shape), accumulate)
        yield case(x, indices, new(dtype, *(1 for _ in picked.shape)), accumulate)
    yield case(x, [plane], new(dtype, 1, 5), accumulate)
    yield case(x, [None, columns], new(dtype, 3, 1, 5), accumulate)


def puts(dtype: torch.dtype) -> Iterable[Sample]:
    for accumulate in (False, True):
        yield from put(dtype, accumulate=accumulate)
        yield from put_by_mask(dtype, accumulate=accumulate)
    again = torch.tensor([0, 2, 0, -1, 2, 2])
    yield case(new(dtype, 3), [again], new(dtype, 6), True)
    yield case(new(dtype, 3, 4), [again, again], new(dtype, 6), True)
    yield case(new(dtype, 3, 4, 2), [again, None, torch.tensor([1])], new(dtype, 6, 4), True)


def unsafe_puts(dtype: torch.dtype) -> Iterable[Sample]:
    yield from put(dtype, accumulate=True)


def flat_puts(dtype: torch.dtype) -> Iterable[Sample]:
    x, index = new(dtype, 3, 4), torch.tensor([[0, 11], [-2, 5]])
    yield from (case(x, index, new(dtype, 4), accumulate) for accumulate in (False, True))
    yield case(x, torch.tensor([1, 1, -11, 1]), new(dtype, 2, 2), True)
    yield case(x, index[:0], new(dtype, 0))
    yield case(new(dtype), torch.tensor([0]), new(dtype, 1))


def sliced(dtype: torch.dtype) -> Iterable[tuple[Tensor, int, Tensor, Tensor]]:
    """Indices that name no slice twice."""
    yield new(dtype, 3, 4), 0, torch.tensor([2, 0]), new(dtype, 2, 4)
    yield new(dtype, 3, 4, 2), -2, torch.tensor([3, 1, 0]), new(dtype, 3, 3, 2)
    yield new(dtype, 3, 4), 1, torch.tensor([], dtype=torch.int64), new(dtype, 3, 0)
    yield new(dtype), 0, torch.tensor([0]), new(dtype)
    yield new(dtype, 0, 2), 1, torch.tensor([1]), new(dtype, 0, 1)


def copies(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(*args) for args in sliced(dtype))
    yield case(new(dtype, 3), 0, torch.tensor(1), new(dtype))


def sums(dtype: torch.dtype) -> Iterable[Sample]:
    again = torch.tensor([1, 1, 0, 1])
    for args in (*sliced(dtype), (new(dtype, 3, 4), 1, again, new(dtype, 3, 4))):
        yield case(*args)
        yield from (case(*args, alpha=alpha) for alpha in ((True, False) if dtype == torch.bool else (3, -1)))
    yield case(new(dtype, 3, 2), 0, again.to(torch.int32), new(dtype, 4, 2))
    if dtype.is_floating_point:
        yield case(new(dtype, 3), 0, again, new(dtype, 4), alpha=1 / 3)


def fills(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(x, dim, index, number) for x, dim, index, _ in sliced(dtype) for number in (2.5, True))


def tensor_fills(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(x, dim, index, new(dtype)) for x, dim, index, _ in sliced(dtype))


def reductions(dtype: torch.dtype) -> Iterable[Sample]:
    again = torch.tensor([1, 1, 0, 1])
    for args in ((new(dtype, 3, 4), 0, again, new(dtype, 4, 4)), (new(dtype, 3, 4), -1, again, new(dtype, 3, 4))):
        for reduce in ("prod", "mean", "amax", "amin"):
            yield from (case(*args, reduce, include_self=include_self) for include_self in (True, False))
    yield case(new(dtype, 3), 0, torch.tensor([], dtype=torch.int64), new(dtype, 0), "amax")


ROWS = (
    Row(aten.index_put.default, ("index_put",), puts, ALL, SUM),
    Row(aten._unsafe_index_put.default, (), unsafe_puts, ALL, SUM),
    Row(aten.put.default, ("put",), flat_puts, ALL, SUM),
    Row(aten.index_add.default, ("index_add",), sums, ALL, SUM),
    Row(aten.index_copy.default, ("index_copy",), copies),
    Row(aten.index_fill.int_Scalar, ("index_fill",), fills),
    Row(aten.index_fill.int_Tensor, ("index_fill",), tensor_fills),
    Row(aten.index_reduce.default, ("index_reduce.mean",), reductions, (*FLOATS, *INTS), SUM),
)
