"""Products of matrices."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from op_rows.row import FLOATS, INTS, MATMUL, Row, Sample, case, new

aten = torch.ops.aten
prims = torch.ops.prims


def products(dtype: torch.dtype, *batch: int) -> Iterable[Sample]:
    for rows, inner, columns in ((2, 3, 4), (1, 64, 1), (3, 0, 2), (0, 3, 2)):
        yield case(new(dtype, *batch, rows, inner), new(dtype, *batch, inner, columns))


def biased_products(dtype: torch.dtype) -> Iterable[Sample]:
    for args, _ in products(dtype):
        rows, columns = args[0].shape[0], args[1].shape[1]
        yield from (case(new(dtype, *size), *args) for size in ((columns,), (rows, columns), (1,), ()))
        yield case(new(dtype, columns), *args, beta=0, alpha=1)
        yield case(new(dtype, columns), *args, beta=2, alpha=3)
    if dtype.is_floating_point:
        yield case(new(dtype, 4), new(dtype, 2, 3), new(dtype, 3, 4), beta=0.3, alpha=1 / 3)
        yield case(torch.full([4], torch.nan, dtype=dtype), new(dtype, 2, 3), new(dtype, 3, 4), beta=0)


def sums_of_products(dtype: torch.dtype) -> Iterable[Sample]:
    x, y = new(dtype, 3, 2, 4), new(dtype, 3, 4, 5)
    yield from (case(new(dtype, *size), x, y) for size in ((2, 5), (5,), ()))
    yield case(new(dtype, 5), x, y, beta=2, alpha=3)
    yield case(new(dtype, 5), x, y, beta=0, alpha=1)
    # no matrices, no terms, no rows, no columns
    for batch, rows, terms, columns in ((0, 2, 3, 4), (3, 2, 0, 4), (3, 0, 2, 4), (3, 2, 4, 0)):
        x, y = new(dtype, batch, rows, terms), new(dtype, batch, terms, columns)
        yield from (case(new(dtype, *size), x, y) for size in ((rows, columns), (columns,), ()))
        yield case(new(dtype, columns), x, y, beta=2, alpha=3)
        yield case(new(dtype, columns), x, y, beta=0, alpha=3)
    if dtype.is_floating_point:
        yield case(torch.full([4], torch.nan, dtype=dtype), new(dtype, 3, 2, 0), new(dtype, 3, 0, 4), beta=0)
        yield case(torch.full([4], torch.nan, dtype=dtype), new(dtype, 3, 2, 0), new(dtype, 3, 0, 4), beta=0.5)


def bilinear(dtype: torch.dtype) -> Iterable[Sample]:
    """As a bilinear layer calls it: forward, and for the gradient of the weight."""
    x, weight, y, grad = new(dtype, 3, 4), new(dtype, 2, 4, 5), new(dtype, 3, 5), new(dtype, 3, 2)
    yield case(x, weight, y, [1, 3], [0], [1, 2], [2, 3])
    yield case(x, grad, y, [1, 3], [2, 3], [1, 2], [0])


def products_of_bytes(dtype: torch.dtype) -> Iterable[Sample]:
    """Also sums that float32 does not hold, of pairs that 16 bits do not."""
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    for rows, inner, columns in ((2, 3, 4), (1, 64, 1), (3, 0, 2), (0, 3, 2), (17, 1500, 5)):
        x = torch.randint(least, most + 1, (rows, inner), dtype=dtype)
        yield case(x, torch.randint(-128, 128, (inner, columns), dtype=torch.int8))
    for number in (least, most):
        x = torch.full([2, 1501], number, dtype=dtype)
        yield from (case(x, torch.full([1501, 3], other, dtype=torch.int8)) for other in (-128, -127, 127))


ROWS = (
    Row(aten.mm.default, ("mm",), products, (*FLOATS, *INTS), MATMUL),
    Row(aten.bmm.default, ("bmm",), lambda d: products(d, 2), (*FLOATS, *INTS), MATMUL),
    Row(aten.addmm.default, ("addmm",), biased_products, (*FLOATS, *INTS), MATMUL),
    Row(aten._int_mm.default, (), products_of_bytes, (torch.int8, torch.uint8)),
    Row(aten._trilinear.default, ("nn.functional.bilinear",), bilinear, FLOATS, MATMUL),
    Row(aten.addbmm.default, ("addbmm",), sums_of_products, (*FLOATS, *INTS), MATMUL),
)
