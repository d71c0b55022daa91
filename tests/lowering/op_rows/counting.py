"""Counts, and each value once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch

from op_rows.row import ALL, INTS, ROUNDING, Row, Sample, case, new, special

aten = torch.ops.aten


def numbers(dtype: torch.dtype) -> Iterable[Sample]:
    for values in ([1, 2, 2, 7], [0], []):
        x = torch.tensor(values, dtype=dtype)
        yield case(x)
        yield case(x, None, 3)
    x = torch.tensor([1, 2, 2, 7], dtype=dtype)
    yield case(x, torch.rand(4), 9)
    yield case(x, torch.rand(4, dtype=torch.float64))
    yield case(x, torch.arange(4))


def repeated(dtype: torch.dtype) -> Iterable[Sample]:
    """Few different values in many shapes, and those at which kernels go wrong."""
    few = new(dtype, 40) if dtype == torch.bool else torch.arange(40).remainder(7).sub(3).to(dtype)
    for flags in itertools.product((False, True), (False, True)):
        yield case(few, *flags)
    for x in (few.reshape(4, 10).t(), special(dtype).repeat(2), few[0], few[:1], few[:0].reshape(3, 0)):
        yield case(x, True, True)


def sorted_or_not(dtype: torch.dtype) -> Iterable[Sample]:
    for i, (args, _) in enumerate(repeated(dtype)):
        yield case(args[0], i % 2 == 0, *args[1:])


def binned(dtype: torch.dtype) -> Iterable[Sample]:
    x = new(dtype, 5, 6, low=-3, high=9)
    yield from (case(x), case(x.t(), 7), case(x, 8, -2, 4.5), case(x, 3, 1, 1), case(x[:0], 4), case(x[0, 0], 5))
    yield case(torch.arange(8, dtype=dtype), 8, 0, 8)
    yield case(torch.full((3,), 2.0, dtype=dtype), 4)
    yield case(special(dtype), 10, -25, 25)


ROWS = (
    Row(aten.histc.default, ("histc",), binned, (torch.float32, torch.float64)),
    Row(aten.bincount.default, ("bincount",), numbers, INTS, ROUNDING),
    Row(aten._unique2.default, (), sorted_or_not, ALL),
    Row(aten.unique_consecutive.default, (), repeated, ALL),
)
