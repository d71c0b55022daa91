"""Tensors out of nothing."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from op_rows.row import FLOATS, INTS, Row, Sample, case, new

aten = torch.ops.aten
prims = torch.ops.prims


CPU = torch.device("cpu")
SIZES: tuple[list[int], ...] = ([2, 3], [], [0], [4, 0, 2])


def filled(dtype: torch.dtype) -> Iterable[Sample]:
    for size in SIZES:
        yield case(size, 1, dtype=dtype)
        yield case(size, 2.5, dtype=dtype)
        yield case(size, True, dtype=dtype)


def filled_default(dtype: torch.dtype) -> Iterable[Sample]:
    yield from filled(dtype)
    yield case([2], 3)
    yield case([2], 3.0)
    yield case([2], False)
    if dtype.is_floating_point:
        yield from (case([2], value, dtype=dtype) for value in (torch.inf, -torch.inf, torch.nan, 1 / 3))


def sized(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(size, dtype=dtype) for size in SIZES)


def new_sized(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(new(dtype, 2), size) for size in SIZES)


def new_filled(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(new(dtype, 2), size, 2.5) for size in SIZES)


def like(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(new(dtype, *size)) for size in SIZES)


def filled_like(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *size), 2.5) for size in SIZES)
    yield case(new(dtype, 2), 2.5, dtype=torch.float64)


def scalar_tensor(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(number, dtype=dtype) for number in (0, 1, 2.5, True))
    yield from (case(number) for number in (2, 2.5))


def counted(dtype: torch.dtype) -> Iterable[Sample]:
    for length, start, step in ((5, 0, 1), (3, 7, -2), (0, 1, 1), (3, 2**40, 2**30)):
        yield case(length, start=start, step=step, dtype=dtype, device=CPU, requires_grad=False)


def arange(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(end, dtype=dtype) for end in (5, 0, 3.5))
    yield from (case(end) for end in (5, 2.5))


def arange_start(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(*ends, dtype=dtype) for ends in ((1, 5), (3, 3), (0.5, 3.5)))
    yield from (case(*ends) for ends in ((-3, 5), (0.5, 3.0)))


def arange_step(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(*ends, dtype=dtype) for ends in ((1, 7, 2), (7, 0, -2), (4, 4, 1)))
    if dtype.is_floating_point:
        yield from (case(*ends, dtype=dtype) for ends in ((0, 1, 0.1), (1.0, -1.0, -0.3), (0.1, 50, 0.7)))
    yield from (case(*ends) for ends in ((-3, 5, 3), (5, -3, -3), (0.5, 3.0, 0.25), (0, 2**40, 2**38)))


ROWS = (
    Row(aten.full.default, ("full",), filled_default),
    Row(aten.zeros.default, ("zeros",), sized),
    Row(aten._efficientzerotensor.default, (), lambda d: [case([2, 3], dtype=d), case([0], dtype=d)]),
    Row(aten.ones.default, ("ones",), sized),
    Row(aten.new_zeros.default, ("new_zeros",), new_sized),
    Row(aten.new_ones.default, ("new_ones",), new_sized),
    Row(aten.new_full.default, ("new_full",), new_filled),
    Row(aten.zeros_like.default, ("zeros_like",), like),
    Row(aten.ones_like.default, ("ones_like",), like),
    Row(aten.full_like.default, ("full_like",), filled_like),
    Row(aten.scalar_tensor.default, ("scalar_tensor",), scalar_tensor),
    Row(prims.scalar_tensor.default, (), lambda d: (case(n, dtype=d, device=CPU) for n in (0, 1, 2.5))),
    Row(prims.iota.default, (), counted, INTS),
    Row(aten.arange.default, ("arange",), arange, (*FLOATS, *INTS), 1),
    Row(aten.arange.start, ("arange",), arange_start, (*FLOATS, *INTS), 1),
    Row(aten.arange.start_step, ("arange",), arange_step, (*FLOATS, *INTS), 1),
)
