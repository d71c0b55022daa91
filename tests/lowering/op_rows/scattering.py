"""Elements written where indices say."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from op_rows.row import FLOATS, INTS, SUM, Row, Sample, case, new

aten = torch.ops.aten

NUMBERS = (*FLOATS, *INTS)


def one_by_one(dtype: torch.dtype) -> Iterable[tuple[torch.Tensor, int, torch.Tensor]]:
    """Tensors with indices that name no place twice."""
    yield new(dtype, 3, 4), 0, torch.tensor([[2, 0, 0, 1], [1, 2, 1, 0]])
    yield new(dtype, 3, 4), -1, torch.tensor([[3, 1], [0, 2]])
    yield new(dtype, 3, 4), 1, torch.zeros(3, 0, dtype=torch.int64)
    yield new(dtype, 3, 4), 1, torch.zeros(0, dtype=torch.int64)
    yield new(dtype), 0, torch.tensor(0)
    yield new(dtype), -1, torch.tensor([0])
    yield new(dtype, 3), 0, torch.tensor(2)


def repeated(dtype: torch.dtype) -> Iterable[tuple[torch.Tensor, int, torch.Tensor]]:
    yield from one_by_one(dtype)
    yield new(dtype, 3, 4), 0, torch.tensor([[2, 2, 0, 1], [2, 2, 1, 1], [0, 2, 0, 1]])
    yield new(dtype, 3, 4), 1, torch.tensor([[3, 3, 3, 0, 3, 1]] * 2)
    yield new(dtype, 3), 0, torch.randint(3, (300,))


def sources(dtype: torch.dtype, index: torch.Tensor) -> torch.Tensor:
    """A little larger than the index."""
    return new(dtype, *(size + 1 for size in index.shape)) if index.ndim > 1 else new(dtype, *index.shape)


def written(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(x, dim, index, sources(dtype, index)) for x, dim, index in one_by_one(dtype))


def numbers_written(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(x, dim, index, number) for x, dim, index in repeated(dtype) for number in (2.5, 1))


def added(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(x, dim, index, sources(dtype, index)) for x, dim, index in repeated(dtype))


def reductions(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(*args, reduce=reduce) for reduce in ("add", "multiply") for args, _ in few(added(dtype)))


def number_reductions(dtype: torch.dtype) -> Iterable[Sample]:
    for reduce in ("add", "multiply"):
        yield from (case(x, dim, index, 2, reduce=reduce) for x, dim, index in list(repeated(dtype))[:-1])


def few(samples: Iterable[Sample]) -> list[Sample]:
    """All but the last, whose 100 terms a place are too many for a product."""
    return list(samples)[:-1]


def two_reductions(dtype: torch.dtype) -> Iterable[Sample]:
    samples = few(added(dtype))
    kinds = KINDS if dtype != torch.bool else tuple(kind for kind in KINDS if kind != "mean")
    for include_self in (True, False):
        for args, _ in samples[::2]:
            yield from (case(*args, reduce, include_self=include_self) for reduce in kinds)
        if dtype.is_floating_point:
            yield from (case(*args, include_self=include_self) for args in not_finite(dtype))


def not_finite(dtype: torch.dtype) -> Iterable[tuple[object, ...]]:
    x = torch.tensor([torch.nan, 1.0, torch.inf, torch.nan], dtype=dtype)
    src = torch.tensor([3.0, torch.nan, 2.0, -torch.inf, torch.inf, 5.0], dtype=dtype)
    for index in ([0, 1, 1, 2, 2, 3], [3, 3, 3, 3, 1, 0]):
        yield from ((x, 0, torch.tensor(index), src, reduce) for reduce in KINDS)


KINDS = ("sum", "prod", "mean", "amax", "amin")

ROWS = (
    Row(aten.scatter.src, ("scatter",), written),
    Row(aten.scatter.value, ("scatter",), numbers_written),
    Row(aten.scatter.reduce, ("scatter",), reductions, NUMBERS, SUM),
    Row(aten.scatter.value_reduce, (), number_reductions, NUMBERS, SUM),
    Row(aten.scatter_add.default, ("scatter_add",), added, units=SUM),
    Row(aten.scatter_reduce.two, ("scatter_reduce.amax",), two_reductions, (*NUMBERS, torch.bool), SUM),
)
