"""Orthogonal polynomials."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from op_rows.row import Row, Sample, case, new
from op_rows.special import WIDE

aten = torch.ops.aten
NAMES = (
    *(f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw"),
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
)
DEGREES = (-1.5, -0.5, 1.0, 3.5, 7.0, 12.0)
MANY = 64.0
"""Roundings that a recurrence adds up, as torch's does, which rounds otherwise by fusing products with sums."""


def by_degree(dtype: torch.dtype) -> Iterable[Sample]:
    """One degree at a time, between the ends and beyond them, for the largest hide the others."""
    for degree in DEGREES:
        for low, high in ((-0.99, 0.99), (1.01, 4)):
            yield case(new(dtype, 2, 30, low=low, high=high), torch.tensor([degree], dtype=dtype))
    yield case(torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5], dtype=dtype).unsqueeze(1), torch.arange(-2, 13))
    yield case(new(dtype), new(dtype, 3, low=0, high=4))
    yield case(new(dtype, 4, 3, low=-2, high=2).t(), new(dtype, low=0, high=6))
    yield case(new(dtype, 0, 3), new(dtype, 3))


def far(dtype: torch.dtype) -> Iterable[Sample]:
    """Degrees of which the values overflow or that are no numbers, arguments that are none.

    Where NaN comes first, torch's kernels return what was in memory.
    """
    ends = torch.tensor([torch.inf, -torch.inf, torch.nan], dtype=dtype)
    yield case(torch.tensor([0.5, 3.0, -3.0, 1.0], dtype=dtype).unsqueeze(1), ends)
    yield case(ends, torch.tensor([-1.0, 0.0, 1.0], dtype=dtype).unsqueeze(1))
    yield case(ends[:2], torch.tensor([2.0, 3.0, 20.0], dtype=dtype).unsqueeze(1))
    yield case(torch.tensor([30.0, -30.0, 1e10], dtype=dtype).unsqueeze(1), torch.tensor([20, 40, 130, 200, 600]))


def tensors(dtype: torch.dtype) -> Iterable[Sample]:
    if not dtype.is_floating_point:
        yield case(new(dtype, 30, low=0, high=3), torch.arange(6, dtype=dtype).unsqueeze(1))
        return
    yield from by_degree(dtype)
    yield from far(dtype)


def number_first(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(x, torch.arange(12).to(dtype)) for x in (1, 0.3, -2.5))


def number_second(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 9, low=-2, high=2), n) for n in (-1, 0, 1, 3, 2.5))


def rows(name: str) -> tuple[Row, ...]:
    packet = getattr(aten, f"special_{name}")
    return (
        Row(packet.default, (f"special.{name}",), tensors, (*WIDE, torch.int64), MANY),
        Row(packet.x_scalar, (), number_first, WIDE, MANY),
        Row(packet.n_scalar, (), number_second, WIDE, MANY),
    )


ROWS = tuple(row for name in NAMES for row in rows(name))
