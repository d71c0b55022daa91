"""Special functions."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from op_rows.elementary import few, with_prim
from op_rows.operands import elements, within
from op_rows.row import FLOATS, ROUNDING, SUM, Row, Sample, case, new

aten = torch.ops.aten
prims = torch.ops.prims


WIDE = (torch.float32, torch.float64)
POLES = 16.0
"""Near a pole, where the last digit of pi times the argument counts."""


def tails(dtype: torch.dtype) -> Iterable[Sample]:
    """Where little of a distribution is left, one magnitude at a time."""
    yield from within(-9, 9, ())(dtype)
    if dtype.is_floating_point:
        yield case(torch.tensor([8.0, 8.02], dtype=dtype))


quantiles = within(0, 1, (1e-4,))
signed_quantiles = within(-1, 1, (1e-4,))
moderate = within(-20, 20, (1e-4,))


def by_order(dtype: torch.dtype) -> Iterable[Sample]:
    """Away from the poles, where torch returns what its rounded pi leaves of infinity."""
    for n in (0, 1):
        x = new(dtype, 30, low=-4, high=9)
        yield case(n, x[(x > 0) | ((x - x.round()).abs() > 0.1)])
        yield case(n, torch.tensor([0.0, 1.0, 0.5, -0.5, 1e-3, 100.0, torch.nan], dtype=dtype))


def by_higher_order(dtype: torch.dtype) -> Iterable[Sample]:
    """One magnitude at a time; factorials that overflow; between the poles at the integers."""
    yield from by_order(dtype)
    for n in (2, 3, 6):
        for low, high in ((0.5, 2), (8, 12), (30, 90), (-4, -3), (-30, -29)):
            yield case(n, new(dtype, 20, low=low + 0.2, high=high - 0.2))
    ends = torch.tensor([0.0, -3.0, 1.5, -2.5, 30.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    yield from (case(n, ends) for n in ((2, 3) if dtype == torch.float64 else (2, 3, 35, 40)))


def hurwitz(dtype: torch.dtype) -> Iterable[Sample]:
    for low, high in ((0.01, 2), (2, 20), (100, 900)):
        yield case(new(dtype, 2, 1, 20, low=1.01, high=9), new(dtype, 3, 1, low=low, high=high))
    yield case(torch.tensor([2.0, 3.0, 5.0, 2.5], dtype=dtype), new(dtype, 4, 1, low=-20, high=-0.1))
    ends = torch.tensor([0.0, -0.0, 1.0, -1.0, -1.5, 0.5, 1.5, 2.0, 3.0, 60.0, torch.inf, -torch.inf, torch.nan])
    yield case(ends.to(dtype), ends.to(dtype).unsqueeze(1))
    yield case(new(dtype, 0, 3), new(dtype))
    yield case(torch.tensor([2, 3]), torch.tensor([4, 1]))


def hurwitz_alike(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 2, 20, low=1.01, high=9), new(dtype, 2, 20, low=0.01, high=20))


def zeta_of_number(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(x, new(dtype, 5, low=0.1, high=4)) for x in (2, 2.3, 0.5))


def zeta_at_number(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 5, low=1.1, high=4), q) for q in (1, 0.3, -2))


def parameters(dtype: torch.dtype) -> Iterable[Sample]:
    """In and beside the regions of the formulas: small ones, both alike, one far beyond the other, and the ends."""
    for low, high, furthest in ((0.01, 1.5, 1.5), (0.1, 10, 20), (15, 25, 40), (150, 250, 300)):
        yield case(new(dtype, 60, low=low, high=high), new(dtype, 60, low=low, high=furthest))
        yield case(new(dtype, 3, 1, low=low, high=high), new(dtype, 20, low=low, high=furthest))
    a = new(dtype, 60, low=21, high=199)
    yield case(a, a * new(dtype, 60, low=0.75, high=1.25))
    yield case(torch.tensor([1e-8, 1e-3, 2.0], dtype=dtype), torch.tensor([1e-3, 1e-7, 1e-6], dtype=dtype))
    ends = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 30.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    yield case(ends.unsqueeze(1), ends)
    yield case(new(dtype, 0, 3), new(dtype))


def alike_parameters(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 60, low=0.1, high=25), new(dtype, 60, low=0.1, high=40))


def arguments(dtype: torch.dtype) -> Iterable[Sample]:
    yield from within(-4, 30, (1e-4,))(dtype)
    if dtype.is_floating_point:
        yield case(torch.tensor([-1.0, -2.0, -0.5, 0.5, 1.0, 2.0, 100.0], dtype=dtype))


def cylinders(dtype: torch.dtype) -> Iterable[Sample]:
    """Between and at the bounds of the formulas, and at the ends; no further, where waves are all rounding."""
    if not dtype.is_floating_point:
        yield case(torch.arange(-9 if dtype.is_signed else 0, 30).to(dtype))
        yield from (case(torch.tensor(x, dtype=dtype)) for x in (2, 5, 22))
        return
    for low, high in ((0, 2), (2, 5), (5, 30), (-30, 0)):
        yield case(new(dtype, 2, 50, low=low, high=high))
    yield case(torch.tensor([2.0, 5.0, 8.0, 2.09, -2.09, -5.0, -8.0, 104.0, 0.5, -0.5], dtype=dtype))
    yield from (case(torch.tensor([x, -x], dtype=dtype)) for x in (1e-2, 1e-4, 1e-6, 1e-20, 1e-30))
    yield case(torch.tensor([[0.0, -0.0, torch.inf], [-torch.inf, torch.nan, 1.0]], dtype=dtype).t())
    yield case(torch.tensor([90.0, -90.0], dtype=dtype))
    yield case(torch.tensor(1.5, dtype=dtype))


def cylinder(name: str, units: float = SUM) -> Row:
    target = getattr(aten, f"special_{name}").default
    return Row(target, (f"special.{name}",), cylinders, (*WIDE, torch.int64), units)


ROWS = (
    *with_prim("erf", ("erf",), elements, ROUNDING),
    *with_prim("erfc", ("erfc",), tails, ROUNDING),
    Row(aten.special_erfcx.default, (), tails, WIDE, SUM),
    Row(prims.erfcx.default, (), few(tails), WIDE, SUM),
    Row(aten.special_log_ndtr.default, (), tails, WIDE, SUM),
    Row(aten.erfinv.default, ("erfinv",), signed_quantiles, units=SUM),
    Row(prims.erf_inv.default, (), few(signed_quantiles), FLOATS, SUM),
    Row(aten.special_ndtri.default, (), quantiles, WIDE, SUM),
    Row(prims.ndtri.default, (), few(quantiles), WIDE, SUM),
    *with_prim("lgamma", ("lgamma",), arguments, SUM),
    *with_prim("digamma", ("digamma",), arguments, POLES),
    Row(aten.polygamma.default, (), by_higher_order, FLOATS, SUM),
    Row(aten.special_zeta.default, ("special.zeta",), hurwitz, WIDE, SUM),
    Row(aten.special_zeta.self_scalar, (), zeta_of_number, WIDE, SUM),
    Row(aten.special_zeta.other_scalar, (), zeta_at_number, WIDE, SUM),
    Row(prims.zeta.default, (), hurwitz_alike, WIDE, SUM),
    *(Row(getattr(aten, name).default, (name,), parameters, FLOATS, SUM) for name in ("igamma", "igammac")),
    *(Row(getattr(prims, name).default, (), alike_parameters, FLOATS, SUM) for name in ("igamma", "igammac")),
    Row(aten.i0.default, (), moderate, FLOATS, SUM),
    Row(prims.bessel_i0.default, (), few(moderate), WIDE, SUM),
    *(
        row
        for name in ("i0e", "i1", "i1e")
        for row in (
            Row(getattr(aten, f"special_{name}").default, (), moderate, WIDE, SUM),
            Row(getattr(prims, f"bessel_{name}").default, (), few(moderate), WIDE, SUM),
        )
    ),
    cylinder("airy_ai", units=64),
    *(
        cylinder(name)
        for name in (
            "bessel_j0",
            "bessel_j1",
            "bessel_y0",
            "bessel_y1",
            "modified_bessel_i0",
            "modified_bessel_i1",
            "modified_bessel_k0",
            "modified_bessel_k1",
            "scaled_modified_bessel_k0",
            "scaled_modified_bessel_k1",
            "spherical_bessel_j0",
        )
    ),
    *(
        Row(getattr(prims, name).default, (), few(cylinders), WIDE, SUM)
        for name in ("bessel_j0", "bessel_j1", "spherical_bessel_j0")
    ),
)
