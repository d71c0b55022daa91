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

TERMS = 30.0
"""Of determinants of random matrices, which may cancel."""


def triangles(dtype: torch.dtype, *size: int) -> Tensor:
    """Well-conditioned in both triangles, and not symmetric."""
    return new(dtype, *size, low=-0.5, high=0.5) + 2 * torch.eye(size[-1], dtype=dtype)


def sides(dtype: torch.dtype) -> Iterable[tuple[Tensor, Tensor]]:
    """A and B of A X = B, with batches that broadcast, without elements, of one row, and in other orders of memory."""
    for a, b in (
        ((3, 3), (3, 2)),
        ((2, 4, 4), (4, 1)),
        ((4, 4), (3, 4, 5)),
        ((2, 1, 3, 3), (3, 3, 2)),
        ((1, 1), (1, 3)),
    ):
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
    for other in (torch.bfloat16, torch.float16, torch.float32):
        yield case(triangles(dtype, 3, 3), triangles(dtype, 3, 3).to(other), upper=True)


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
    """With NaN in the triangle that is not read."""
    for x in matrices:
        above = torch.ones_like(x, dtype=torch.bool).triu(1)
        yield case(x.masked_fill(above, torch.nan))
        yield case(x.masked_fill(above.mT, torch.nan), upper=True)


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


def matrices(dtype: torch.dtype) -> Iterable[Tensor]:
    for size in ((3, 3), (2, 3, 4, 4), (1, 1), (0, 0), (0, 3, 3), (2, 0, 0), (40, 40)):
        yield new(dtype, *size)
        yield new(dtype, *size).mT
    yield torch.eye(4, dtype=dtype).roll(1, 0).expand(2, 4, 4)
    yield torch.tensor([[1.0, 1, 1], [-1, 1, 2], [1, 2, 4]], dtype=dtype)  # the first of equal pivots counts


def oblong(dtype: torch.dtype) -> Iterable[Tensor]:
    yield from matrices(dtype)
    for size in ((2, 5), (5, 2), (2, 1, 3), (2, 3, 1), (0, 3), (3, 0), (2, 3, 0)):
        yield new(dtype, *size)
    yield new(dtype, 2, 5).mT


def singular(dtype: torch.dtype) -> Iterable[Tensor]:
    """Where rounding does not decide about it, also where the transposed matrix is factored."""
    yield torch.zeros(3, 3, dtype=dtype)
    yield torch.tensor([[[1.0, 2, 4], [2, 4, 8], [1, 1, 1]], [[4, 0, 2], [0, 2, 1], [0, 0, 1]]], dtype=dtype)
    yield torch.tensor([[0.0, 1, 2], [0, 0, 3], [0, 0, 0]], dtype=dtype)


def not_numbers(dtype: torch.dtype) -> Iterable[Tensor]:
    nan, inf = torch.nan, torch.inf
    yield torch.tensor([[1, 2, 3], [nan, 4, 6], [5, 1, 1]], dtype=dtype)
    yield torch.tensor([[nan, 2, 3], [1, 4, 6], [5, 1, 1]], dtype=dtype)
    yield torch.tensor([[1, 2, 3], [2, 4, nan], [5, 1, 1]], dtype=dtype)
    yield torch.tensor([[inf, 2, 3], [2, 4, 6], [1, 1, 1]], dtype=dtype)


def to_eliminate(dtype: torch.dtype) -> Iterable[Sample]:
    for samples in (oblong, singular, not_numbers):
        yield from (case(x) for x in samples(dtype))


def square(dtype: torch.dtype) -> Iterable[Sample]:
    for samples in (matrices, singular, not_numbers):
        yield from (case(x) for x in samples(dtype))


def packed(dtype: torch.dtype) -> Iterable[Sample]:
    for x in oblong(dtype):
        lu, pivots, _ = torch.linalg.lu_factor_ex(x)
        for parts in ((), (False,), (True, False)):
            yield case(lu, pivots, *parts)


def eliminated_systems(dtype: torch.dtype) -> Iterable[Sample]:
    for a, b in sides(dtype):
        lu, pivots = torch.linalg.lu_factor(a.roll(1, -2))
        for adjoint in (False, True):
            yield case(lu, pivots, b, adjoint=adjoint)
            yield case(lu, pivots, b.mT, left=False, adjoint=adjoint)


def systems(dtype: torch.dtype) -> Iterable[Sample]:
    for a, b in sides(dtype):
        yield case(a.roll(1, -2), b)
        yield case(a.roll(1, -2), b.mT, left=False)
    yield case(triangles(dtype, 3, 3), new(dtype, 3))
    yield case(triangles(dtype, 2, 3, 3), new(dtype, 2, 3))
    yield case(triangles(dtype, 2, 3, 3).mT, new(dtype, 3))


def invertible(dtype: torch.dtype) -> Iterable[Sample]:
    for a, _ in sides(dtype):
        yield case(a.roll(1, -2))
        yield case(a.mT)


def to_reflect(dtype: torch.dtype) -> Iterable[Tensor]:
    yield from oblong(dtype)
    yield torch.tensor([[0.0, 1], [0, 2], [3, 1]], dtype=dtype)
    yield torch.tensor([[-2.0, 1], [0, -2]], dtype=dtype)
    yield torch.tensor([[-0.0, 1], [1, 2]], dtype=dtype)
    yield torch.tensor([[1.0, 2], [2, 4], [0, 0]], dtype=dtype)
    yield torch.zeros(3, 2, dtype=dtype)
    yield torch.full([2, 2], torch.finfo(dtype).max / 4, dtype=dtype).tril()
    yield torch.tensor([[1.0, 2], [torch.nan, 4], [0, 0]], dtype=dtype)


def reflected(dtype: torch.dtype) -> Iterable[Sample]:
    for x in to_reflect(dtype):
        yield from (case(x, mode) for mode in ("reduced", "complete", "r"))


def reflections(dtype: torch.dtype) -> Iterable[tuple[Tensor, Tensor]]:
    for size in ((4, 3), (3, 3), (2, 3, 5, 2), (1, 1), (30, 20), (3, 0), (0, 3, 2)):
        x, tau = torch.geqrf(new(dtype, *size))
        yield x, tau


def orthogonal(dtype: torch.dtype) -> Iterable[Sample]:
    """Of as many reflections as there are columns, and of fewer."""
    for x, tau in reflections(dtype):
        yield case(x, tau)
        yield case(x, tau[..., :-1])


def products(dtype: torch.dtype) -> Iterable[Sample]:
    for x, tau in reflections(dtype):
        other = new(dtype, *x.shape[:-1], 3)
        for transpose in (False, True):
            yield case(x, tau, other, True, transpose)
            yield case(x, tau, other.mT, False, transpose)


def exponents(dtype: torch.dtype) -> Iterable[Sample]:
    for size, scale in (((3, 3), 1), ((2, 4, 4), 0.01), ((2, 4, 4), 3), ((1, 1), 1), ((0, 0), 1), ((0, 2, 2), 1)):
        yield case(scale * new(dtype, *size, low=-1, high=1))
    yield case(new(dtype, 3, 3, low=-1, high=1) * torch.tensor([1e-3, 0.3, 7]).to(dtype).reshape(3, 1, 1))
    yield case(torch.zeros(3, 3, dtype=dtype))
    yield case(torch.tensor([[0.0, 100], [0, 0]], dtype=dtype))
    yield case(torch.tensor([[-20.0, 0], [0, 1]], dtype=dtype))
    yield from (case(torch.tensor([[number, 1], [0, 1]], dtype=dtype)) for number in (torch.nan, torch.inf, -torch.inf))


ROWS = (
    Row(aten.linalg_solve_triangular.default, ("linalg.solve_triangular",), triangular_systems, WIDE, FACTOR),
    Row(aten.triangular_solve.default, ("triangular_solve",), old_triangular_systems, WIDE, FACTOR),
    Row(aten.linalg_cholesky_ex.default, ("linalg.cholesky_ex",), to_factor, WIDE, FACTOR),
    *(
        Row(packet.default, ("cholesky",), lambda d: half_read(definite(d)), WIDE, FACTOR)
        for packet in (getattr(aten, "cholesky", None),)  # torch 2.14 has left it out
        if packet
    ),
    Row(aten.cholesky_solve.default, ("cholesky_solve",), factored_systems, WIDE, FACTOR),
    Row(aten.cholesky_inverse.default, ("cholesky_inverse",), factors, WIDE, FACTOR),
    Row(aten.linalg_lu_factor_ex.default, ("linalg.lu_factor_ex",), to_eliminate, WIDE, FACTOR),
    Row(aten.linalg_lu.default, ("linalg.lu",), to_eliminate, WIDE, FACTOR),
    Row(aten.lu_unpack.default, ("lu_unpack",), packed, WIDE, FACTOR),
    Row(aten.linalg_lu_solve.default, ("linalg.lu_solve",), eliminated_systems, WIDE, FACTOR),
    Row(aten._linalg_solve_ex.default, ("linalg.solve_ex",), systems, WIDE, FACTOR),
    Row(aten.linalg_inv_ex.default, ("linalg.inv_ex",), invertible, WIDE, FACTOR),
    Row(aten._linalg_det.default, ("linalg.det",), square, WIDE, FACTOR, TERMS),
    Row(aten._linalg_slogdet.default, ("linalg.slogdet",), square, WIDE, FACTOR, TERMS),
    Row(aten.geqrf.default, ("geqrf",), lambda d: map(case, to_reflect(d)), WIDE, FACTOR),
    Row(aten.linalg_qr.default, ("linalg.qr",), reflected, WIDE, FACTOR),
    Row(aten.linalg_householder_product.default, ("linalg.householder_product",), orthogonal, WIDE, FACTOR),
    Row(aten.ormqr.default, ("ormqr",), products, WIDE, FACTOR),
    Row(aten.linalg_matrix_exp.default, ("matrix_exp",), exponents, WIDE, FACTOR),
)
