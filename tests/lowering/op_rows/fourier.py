"""Fourier transforms, and complex tensors as their parts."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from op_rows.row import SUM, Row, Sample, case, new

aten = torch.ops.aten

REAL = (torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
LENGTHS = (1, 2, 3, 7, 64, 65, 67, 100, 128, 400, 509, 1000, 1024, 3000, 67 * 71)
"""Short and long ones, powers of two, primes, products of both."""


def of_reals(dtype: torch.dtype) -> Iterable[Sample]:
    for n in LENGTHS:
        yield from (case(new(dtype, 2, n), [1], norm, half) for norm in (0, 1, 2) for half in (True, False))
    x = new(dtype, 2, 6, 1, 5)
    yield from (case(x, dims, 2, True) for dims in ([0], [2], [1, 3], [3, 1], [0, 1, 3]))
    yield case(new(dtype, 5), [0], 0, True)
    yield case(new(dtype, 5, 3).t(), [1], 0, True)


def of_complex(dtype: torch.dtype) -> Iterable[Sample]:
    for n in LENGTHS:
        yield from (case(new(dtype, 2, n), [1], norm, forward) for norm in (0, 1, 2) for forward in (True, False))
    x = new(dtype, 2, 6, 1, 5)
    yield from (case(x, dims, 1, True) for dims in ([0], [2], [1, 3], [3, 1], [0, 1, 2, 3], []))
    yield case(x.conj(), [1], 0, False)
    yield case(torch._neg_view(x), [1], 0, False)
    yield case(x.permute(3, 1, 0, 2), [0, 1], 0, False)


def to_reals(dtype: torch.dtype) -> Iterable[Sample]:
    """The parts of the first element that nobody reads are not 0."""
    for n in LENGTHS:
        yield from (case(new(dtype, 2, n // 2 + 1), [1], norm, n) for norm in (0, 1, 2))
    yield from (case(new(dtype, 4, 3, 6), dims, 2, 10) for dims in ([2], [0, 2], [1, 0, 2]))


def complexes(dtype: torch.dtype) -> Iterable[Sample]:
    x = new(dtype, 2, 3)
    yield from (case(each) for each in (x, x.t(), new(dtype), new(dtype, 0, 3)))


def conjugates(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(each.conj()) for each in (new(dtype, 2, 3), new(dtype)))
    yield from complexes(dtype)


def pairs(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *shape, 2)) for shape in ((2, 3), (), (0, 3)))


ROWS = (
    Row(aten._fft_r2c.default, ("fft.rfft", "fft.rfftn", "fft.ihfft2", "stft"), of_reals, REAL, SUM),
    Row(aten._fft_c2c.default, ("fft.fft", "fft.ifftn", "fft.hfft2"), of_complex, COMPLEX, SUM),
    Row(aten._fft_c2r.default, ("fft.irfft", "fft.irfftn", "fft.hfft"), to_reals, COMPLEX, SUM),
    Row(aten.view_as_real.default, ("view_as_real",), complexes, COMPLEX),
    Row(aten.view_as_complex.default, ("view_as_complex",), pairs, REAL),
    Row(aten.resolve_conj.default, (), conjugates, (*COMPLEX, torch.float32)),
)
