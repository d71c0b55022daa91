"""Elementary functions of one element, their inverses, rounding and signs."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from op_rows.operands import alike, elements, few_elements, within
from op_rows.row import BOOL, FLOATS, HALF, INTS, ROUNDING, SUM, Row, Sample, Samples, case, new, special

aten = torch.ops.aten
prims = torch.ops.prims
NUMBERS = (*FLOATS, *INTS)
BUT_FLOAT64 = (torch.float32, *HALF, *INTS, *BOOL)


def with_prim(name: str, infos: tuple[str, ...], own: Samples, units: float, **options: float) -> tuple[Row, Row]:
    """The rows of an ATen function of one element and of the prim of that name."""
    return (
        Row(getattr(aten, name).default, infos, own, units=units, **options),
        Row(getattr(prims, name).default, (), few(own), FLOATS, units, **options),
    )


def few(samples: Samples) -> Samples:
    """The first two."""
    return lambda dtype: [sample for sample, _ in zip(samples(dtype), range(2), strict=False)]


def small_elements(dtype: torch.dtype) -> Iterable[Sample]:
    """Without the arguments at which sine and cosine are all rounding."""
    yield from (case(new(dtype, *size)) for size in ((), (0, 2), (2, 3, 5), (300,)))
    yield case(torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan]))


def logarithms(dtype: torch.dtype) -> Iterable[Sample]:
    yield from within(0, 9)(dtype)
    yield case(torch.tensor([2.0**-3, 8, 2**29, 1000, 1e6, 1e-3, 1e15]))


FUNCTIONS = (
    *with_prim("cos", ("cos",), small_elements, ROUNDING),
    *with_prim("sin", ("sin",), small_elements, ROUNDING),
    Row(aten.tan.default, ("tan",), within(-1.5, 1.5), BUT_FLOAT64, ROUNDING),
    Row(prims.tan.default, (), few(within(-1.5, 1.5)), (torch.float32, *HALF), ROUNDING),
    *with_prim("exp", ("exp",), elements, SUM),
    *with_prim("exp2", ("exp2",), within(-9, 9), ROUNDING),
    *with_prim("expm1", ("expm1",), within(-9, 9), SUM),
    *with_prim("log", ("log",), elements, ROUNDING),
    *with_prim("log1p", ("log1p",), within(-1, 9), ROUNDING),
    *with_prim("log2", ("log2",), logarithms, ROUNDING),
    *with_prim("log10", ("log10",), logarithms, ROUNDING),
    *with_prim("reciprocal", ("reciprocal",), elements, ROUNDING),
    *with_prim("sqrt", ("sqrt",), elements, ROUNDING),
    *with_prim("rsqrt", ("rsqrt",), elements, ROUNDING),
    *with_prim("tanh", ("tanh",), elements, ROUNDING),
    *with_prim("cosh", ("cosh",), within(-9, 9), ROUNDING),
    *with_prim("sinh", ("sinh",), within(-9, 9), SUM),
    *with_prim("acos", ("acos",), within(-1, 1), ROUNDING),
    *with_prim("acosh", ("acosh",), within(1, 9), ROUNDING),
    *with_prim("asin", ("asin",), within(-1, 1), ROUNDING),
    *with_prim("asinh", ("asinh",), within(-9, 9), ROUNDING),
    *with_prim("atan", ("atan",), within(-9, 9), ROUNDING),
    *with_prim("atanh", ("atanh",), within(-1, 1), ROUNDING),
    Row(aten.sigmoid.default, ("sigmoid",), elements, units=ROUNDING),
)


def quadrants(dtype: torch.dtype) -> Iterable[Sample]:
    ends = torch.tensor([0.0, -0.0, 1.0, -1.0, 3.0, -3.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    yield case(ends, ends.reshape(-1, 1))
    yield from binary_floats(dtype)


def binary_floats(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 2, 30), new(dtype, 30))
    yield case(new(dtype), new(dtype, 3))
    yield case(new(dtype, 0, 3), new(dtype, 3))
    ends = torch.tensor([0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    yield case(ends, ends.reshape(-1, 1))


def with_log(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 2, 30, low=-3, high=3), new(dtype, 30, low=0, high=3))
    yield case(new(dtype, 3), torch.tensor([0, 1, 2]))
    ends = torch.tensor([0.0, 1.0, -1.0, torch.inf, torch.nan], dtype=dtype)
    yield case(ends, ends.reshape(-1, 1))


def number_first(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(number, torch.tensor([0.0, 0.3, 2.0, -1.0, torch.nan], dtype=dtype)) for number in (0, 2, 1 / 3))


def number_second(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(torch.tensor([0.0, 0.3, 2.0, torch.nan], dtype=dtype), number) for number in (0, 2, 1 / 3))


def probabilities(dtype: torch.dtype) -> Iterable[Sample]:
    x = torch.tensor([0.0, 1.0, 0.5, 0.25, 0.01, 0.99, -0.5, 2.0, torch.nan], dtype=dtype)
    yield from (case(x, eps) for eps in (None, 0.1, 0.0))


def gradients_of_logit(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(new(dtype, *x.shape), x, eps) for (x, eps), _ in probabilities(dtype))


BY_LOGARITHM = (
    Row(aten.logaddexp.default, ("logaddexp",), binary_floats, FLOATS, ROUNDING),
    Row(aten.logaddexp2.default, ("logaddexp2",), binary_floats, (torch.float32, torch.float64), ROUNDING),
    Row(aten.xlogy.Tensor, ("xlogy",), with_log, FLOATS, ROUNDING),
    Row(aten.xlogy.Scalar_Self, (), number_first, FLOATS, ROUNDING),
    Row(aten.xlogy.Scalar_Other, (), number_second, FLOATS, ROUNDING),
    Row(aten.special_xlog1py.default, ("special.xlog1py",), with_log, FLOATS, ROUNDING),
    Row(aten.special_xlog1py.self_scalar, (), number_first, FLOATS, ROUNDING),
    Row(aten.special_xlog1py.other_scalar, (), number_second, FLOATS, ROUNDING),
    Row(aten.special_entr.default, ("special.entr",), within(0, 2), units=ROUNDING),
    Row(aten.logit.default, ("logit",), probabilities, FLOATS, ROUNDING),
    Row(aten.logit_backward.default, ("logit",), gradients_of_logit, FLOATS, ROUNDING),
    Row(aten.angle.default, ("angle",), few_elements, units=ROUNDING),
    Row(aten.atan2.default, ("atan2",), quadrants, FLOATS, ROUNDING),
    Row(prims.atan2.default, (), alike, FLOATS, ROUNDING),
)


def halves(dtype: torch.dtype) -> Iterable[Sample]:
    yield from elements(dtype)
    if dtype.is_floating_point:
        yield case(torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 8388609.0, -0.2], dtype=dtype))


def rounded(name: str, infos: tuple[str, ...]) -> tuple[Row, Row]:
    return (
        Row(getattr(aten, name).default, infos, halves, NUMBERS),
        Row(getattr(prims, name).default, (), few(halves), FLOATS),
    )


def to_decimals(dtype: torch.dtype) -> Iterable[Sample]:
    x = torch.tensor([2.5, 3.5, 0.125, 0.375, -2.345, 1250.0, 1350.0, 1e4, torch.inf, torch.nan])
    for decimals in (0, 1, 2, -2):
        yield case(x.to(dtype), decimals=decimals)


ROUNDED = (
    *rounded("ceil", ("ceil",)),
    *rounded("floor", ("floor",)),
    *rounded("round", ("round",)),
    *rounded("trunc", ("trunc",)),
    Row(aten.round.decimals, ("round.decimals_3",), to_decimals, FLOATS, 1),
    Row(aten.frac.default, ("frac",), halves, FLOATS),
)


def copied_signs(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(special(dtype), new(dtype, len(special(dtype))))
    yield case(new(dtype, 2, 3), torch.tensor([0.0, -0.0, -1.0]))
    yield case(new(dtype, 3), torch.tensor([-1, 0, 1]))


def signs_of_numbers(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 5), number) for number in (1, -2.5, 0.0, -0.0))


def replaced(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(special(dtype))
    yield case(special(dtype), 1.5, 2.5, -3.5)
    yield case(special(dtype), None, torch.inf, None)
    yield case(special(dtype), torch.nan, None, 0.0)


def neighbours(dtype: torch.dtype) -> Iterable[Sample]:
    """At zeros, at the bounds of what is normal, at powers of two; in every direction."""
    limits = torch.finfo(dtype)
    smallest = limits.tiny * limits.eps
    powers = [2.0**k for k in (-30, -1, 0, 1, 13)] + [limits.tiny * 2**k for k in range(7)]
    x = torch.tensor([0.0, smallest, 2 * smallest, 5 * smallest, *powers, limits.max, torch.inf], dtype=torch.float64)
    x = torch.cat([x.to(dtype), new(dtype, 50), new(dtype, 50) * limits.tiny, new(dtype, 50).abs().exp()])
    around = [torch.nextafter(x, torch.tensor(end, dtype=dtype)) for end in (torch.inf, 0.0)]
    x = torch.cat([x, *around])
    x = torch.cat([x, -x, torch.tensor([torch.nan], dtype=dtype)])
    ends = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1.0, -smallest], dtype=dtype)
    yield case(x, ends.unsqueeze(1))
    yield case(x, x.clone())
    yield case(ends, ends.flip(0))


SIGNS = (
    Row(aten.abs.default, ("abs",), elements, NUMBERS),
    Row(prims.abs.default, (), few_elements, NUMBERS),
    Row(aten.neg.default, ("neg",), elements, NUMBERS),
    Row(prims.neg.default, (), few_elements, NUMBERS),
    Row(aten.sign.default, ("sign",), elements),
    Row(aten.sgn.default, ("sgn",), elements),
    Row(prims.sign.default, (), few_elements, NUMBERS),
    Row(aten.nextafter.default, ("nextafter",), neighbours, FLOATS),
    Row(prims.nextafter.default, (), lambda d: [case(special(d), special(d).flip(0))], FLOATS),
    Row(aten.signbit.default, ("signbit",), elements),
    Row(aten.copysign.Tensor, ("copysign",), copied_signs),
    Row(aten.copysign.Scalar, (), signs_of_numbers),
    Row(
        aten.heaviside.default,
        ("heaviside",),
        lambda d: [case(special(d), new(d, len(special(d)))), case(new(d, 3), new(d))],
    ),
    Row(aten.isnan.default, ("isnan",), elements),
    Row(aten.isfinite.default, ("isfinite",), elements),
    Row(prims.isfinite.default, (), few_elements, FLOATS),
    Row(aten.isinf.default, ("isinf",), elements),
    Row(aten.isposinf.default, ("isposinf",), elements),
    Row(aten.isneginf.default, ("isneginf",), elements),
    Row(aten.nan_to_num.default, ("nan_to_num",), replaced),
)

ROWS = (*FUNCTIONS, *BY_LOGARITHM, *ROUNDED, *SIGNS)
