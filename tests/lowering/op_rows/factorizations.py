"""Factorizations of matrices, and what is solved with them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from op_rows.row import Row, Sample, case, new

aten = torch.ops.aten
WIDE = (torch.float32, torch.float64)
FACTOR = 32.0
"""A factorization: as many roundings as rows, in another order than LAPACK's."""


def triangles(dtype: torch.dtype, *size: int) -> Tensor:
    """Well-conditioned in both triangles, and not symmetric."""
    return new(dtype, *size, low=-0.5, high=0.5) + 2 * torch.eye(size[-1], dtype=dtype)


def sides(dtype: torch.dtype) -> Iterable[tuple[Tensor, Tensor]]:
    """A and B of A X = B, with batches that broadcast, without elements, of one row, and in other orders of memory."""
    for a, b in (((3, 3), (3, 2)), ((2, 4, 4), (4, 1)), ((4, 4), (3, 4, 5)), ((2, 1, 3, 3), (3, 3, 2)), ((1, 1), (1, 3))):
        yield triangles(dtype, *a), new(dtype, *b)
    for a, b in (((0, 0), (0, 3)), ((3, 3), (3, 0)), ((0, 3, 3), (1, 3, 2)), ((40, 40), (40, 40))):
        yield triangles(dtype, *a), new(dtype, *b)
    yield triangles(dtype, 3, 3).mT, new(dtype, 2, 3).mT
    a = triangles(dtype, 4, 4)
    b = new(dtype, 4, 2)
    b[2, 0] = torch.nan
    yield a, b
    b = new(dtype, 4, 2)
    b[1, 1] = torch.inf
    yield a, b


def triangular_systems(dtype: torch.dtype) -> Iterable[Sample]:
    for a, b in sides(dtype):
        for upper in (True, False):
            yield case(a, b, upper=upper, unitriangular=not upper)
            yield case(a, b, upper=upper)
            yield case(a, b.mT, upper=upper, left=False)
    singular = torch.tensor([[1.0, 2, 3], [0, 0, 6], [0, 0, 1]], dtype=dtype)
    yield case(singular, torch.ones(3, 2, dtype=dtype), upper=True)
    unread = torch.tensor([[2.0, torch.nan], [1, 3]], dtype=dtype)
    yield case(unread, torch.ones(2, 2, dtype=dtype), upper=False)
    yield case(unread.fill_diagonal_(torch.nan), torch.ones(2, 2, dtype=dtype), upper=False, unitriangular=True)


def old_triangular_systems(dtype: torch.dtype) -> Iterable[Sample]:
    for a, b in sides(dtype):
        for flags in ((), (False,), (True, True), (False, True), (True, False, True), (False, True, True)):
            yield case(b, a, *flags)


def definite(dtype: torch.dtype) -> Iterable[Tensor]:
    for size in ((3, 3), (2, 3, 4, 4), (1, 1), (0, 0), (0, 3, 3), (40, 40)):
        x = triangles(dtype, *size)
        yield x @ x.mT
    yield torch.eye(3, dtype=dtype).expand(2, 3, 3)


def indefinite(dtype: torch.dtype) -> Iterable[Tensor]:
    """Small ones: with large ones, LAPACK's blocks have gone further when it ends."""
    yield torch.tensor([[4.0, 2, 1, 3], [2, 1, 5, 1], [1, 5, 9, 2], [3, 1, 2, 8]], dtype=dtype)
    for number in (-1.0, 0.0, torch.nan):
        x = 4 * torch.eye(5, dtype=dtype).repeat(3, 1, 1)
        x[0, 2, 2] = x[2, 4, 4] = number
        x[0, 3, 2] = x[0, 2, 3] = 7
        x[2, 0, 4] = x[2, 4, 0] = 0.5
        yield x


def half_read(matrices: Iterable[Tensor]) -> Iterable[Sample]:
    for x in matrices:
        yield case(x.tril() + torch.nan * torch.ones_like(x).triu(1))
        yield case(x.triu() + torch.nan * torch.ones_like(x).tril(-1), upper=True)


def to_factor(dtype: torch.dtype) -> Iterable[Sample]:
    yield from half_read(definite(dtype))
    yield from half_read(indefinite(dtype))
    yield from (case(x.mT) for x in definite(dtype))


def factors(dtype: torch.dtype) -> Iterable[Sample]:
    for size in ((3, 3), (2, 4, 4), (1, 1), (0, 0), (0, 3, 3), (40, 40)):
        for upper in (False, True):
            yield case(triangles(dtype, *size), upper)


def factored_systems(dtype: torch.dtype) -> Iterable[Sample]:
    for a, b in sides(dtype):
        if b.isfinite().all():
            yield case(b, a)
            yield case(b, a, True)


ROWS = (
    Row(aten.linalg_solve_triangular.default, ("linalg.solve_triangular",), triangular_systems, WIDE, FACTOR),
    Row(aten.triangular_solve.default, ("triangular_solve",), old_triangular_systems, WIDE, FACTOR),
    Row(aten.linalg_cholesky_ex.default, ("linalg.cholesky_ex",), to_factor, WIDE, FACTOR),
    Row(aten.cholesky.default, ("cholesky",), lambda d: half_read(definite(d)), WIDE, FACTOR),
    Row(aten.cholesky_solve.default, ("cholesky_solve",), factored_systems, WIDE, FACTOR),
    Row(aten.cholesky_inverse.default, ("cholesky_inverse",), factors, WIDE, FACTOR),
)
