"""Sums, products, quotients, remainders and powers."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch._inductor.inductor_prims  # with prims.fma
from torch import Tensor

from op_rows.operands import alike, binary, elements, numbers
from op_rows.row import FLOATS, HALF, INTS, ROUNDING, SUM, Row, Sample, Samples, case, new, special

aten = torch.ops.aten
prims = torch.ops.prims
NUMBERS = (*FLOATS, *INTS)


def with_alpha(dtype: torch.dtype) -> Iterable[Sample]:
    yield from binary(dtype)
    if dtype == torch.bool:
        yield from (case(new(dtype, 9), new(dtype, 9), alpha=alpha) for alpha in (True, False))
    yield case(new(dtype, 2, 3), new(torch.float32, 3), alpha=2.5)
    yield case(new(dtype, 2, 3), new(torch.int64, 3), alpha=3)
    yield case(new(torch.int64, 3), 4, alpha=3)
    if dtype.is_floating_point:
        yield case(new(dtype, 64), new(dtype, 64), alpha=1 / 3)


def number_first(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(number, new(dtype, 2, 3)) for number in (3, 1 / 3, True))
    yield from (case(number, new(dtype, 2, 3), alpha=alpha) for number, alpha in ((1e-6, 1 / 3), (2, 3)))


def number_with_alpha(dtype: torch.dtype) -> Iterable[Sample]:
    yield from numbers(dtype)
    yield case(new(dtype, 2, 3), 2.5, 0.5)
    yield case(new(dtype, 2, 3), 2, 3)


def no_bool(samples: Samples) -> Samples:
    """Without the operands of which torch refuses to take a difference."""

    def allowed(sample: Sample) -> bool:
        return not any(x.dtype == torch.bool if isinstance(x, Tensor) else isinstance(x, bool) for x in sample[0])

    return lambda dtype: (sample for sample in samples(dtype) if allowed(sample))


def products(dtype: torch.dtype) -> Iterable[Sample]:
    for value in (1, 2, -3 if dtype not in (torch.uint8, torch.bool) else 3):
        yield case(new(dtype, 2, 3), new(dtype, 3), new(dtype, 2, 1), value=value)
    if dtype.is_floating_point:
        yield case(new(dtype, 64), new(dtype, 64), new(dtype, 64), value=1 / 3)
        yield case(new(dtype), new(dtype, 0, 2), new(dtype))


def interpolated(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3), new(dtype, 3), weight) for weight in (0.3, 0.5, 1 / 3, 1, -2))
    yield case(special(dtype), special(dtype).flip(0), 0.7)


def interpolated_by_tensor(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 2, 30), new(dtype, 30), new(dtype, 2, 1))
    yield case(new(dtype, 30), new(dtype, 30), new(dtype, 30, low=0, high=1))
    yield case(new(dtype), new(dtype), new(dtype))


def shifts(dtype: torch.dtype) -> Iterable[Sample]:
    """By small exponents, by numbers, and as far as from the smallest number to the largest and back."""
    yield case(new(dtype, 5), torch.arange(-2, 3))
    yield case(new(dtype, 3), torch.tensor([7, 200, 0], dtype=torch.uint8))
    yield case(new(dtype, 2), torch.tensor([0.5, 3.0]))
    if dtype.is_floating_point:
        limits = torch.finfo(dtype)
        ends = torch.tensor([limits.smallest_normal, limits.max, 0.0, math.inf, math.nan, -limits.tiny], dtype=dtype)
        bits = int(-2 * math.log2(limits.tiny))
        yield case(ends, torch.tensor([bits, -bits, 2**20, -(2**31), 4, -3]))
        yield case(new(dtype, 3), torch.tensor([2**33, 2**32 + 1, -(2**31) - 1]))


SUMS = (
    Row(aten.add.Tensor, ("add",), lambda d: [*with_alpha(d), *number_first(d)], units=ROUNDING),
    Row(aten.add.Scalar, (), number_with_alpha, units=ROUNDING),
    Row(prims.add.default, (), alike, units=ROUNDING),
    Row(aten.sub.Tensor, ("sub",), no_bool(with_alpha), NUMBERS, ROUNDING),
    Row(aten.sub.Scalar, (), no_bool(number_with_alpha), NUMBERS, ROUNDING),
    Row(prims.sub.default, (), alike, NUMBERS, ROUNDING),
    Row(
        aten.rsub.Tensor,
        (),
        no_bool(lambda d: [s for s in with_alpha(d) if isinstance(s[0][1], Tensor)]),
        NUMBERS,
        ROUNDING,
    ),
    Row(aten.rsub.Scalar, ("rsub",), no_bool(number_with_alpha), NUMBERS, ROUNDING),
    Row(aten.mul.Tensor, ("mul",), binary, units=ROUNDING),
    Row(aten.mul.Scalar, (), numbers, units=ROUNDING),
    Row(prims.mul.default, (), alike, units=ROUNDING),
    Row(aten.div.Tensor, ("div.no_rounding_mode",), binary, units=ROUNDING),
    Row(aten.true_divide.Tensor, (), binary, units=ROUNDING),
    Row(prims.div.default, (), lambda d: [case(new(d, 2, 3), new(d, 2, 3))], FLOATS, ROUNDING),
    Row(aten.div.Scalar, (), numbers, units=ROUNDING),
    Row(aten.addcmul.default, ("addcmul",), products, NUMBERS, ROUNDING),
    Row(prims.fma.default, (), lambda d: [case(new(d, 2, 3), new(d, 2, 3), new(d, 2, 3))], FLOATS, ROUNDING),
    Row(aten.addcdiv.default, ("addcdiv",), products, FLOATS, ROUNDING),
    Row(aten.lerp.Scalar, ("lerp",), interpolated, FLOATS, ROUNDING),
    Row(aten.lerp.Tensor, ("lerp",), interpolated_by_tensor, FLOATS, ROUNDING),
)


def dividends(dtype: torch.dtype) -> Tensor:
    """Of either sign, multiples of the divisors and not; what float64 does not hold; the smallest, divided by -1."""
    if dtype.is_floating_point:
        some = [7.0, -7.0, 6.0, -6.0, 1.0, 0.0, -0.0, 5.5, -7.25, 0.3, 1e4, torch.inf, -torch.inf, torch.nan]
        return torch.tensor(some, dtype=dtype)
    limits = torch.iinfo(dtype)
    signs = (1,) if dtype == torch.uint8 else (1, -1)
    return torch.tensor(
        [s * n for s in signs for n in (0, 1, 6, 7, limits.max, limits.max - 6)] + [limits.min], dtype=dtype
    )


def divisions(dtype: torch.dtype) -> Iterable[Sample]:
    x = dividends(dtype)
    divisors = [3, 1, 7] if dtype == torch.uint8 else [3, -3, 1, -1, -7]
    if dtype.is_floating_point:
        divisors += [0.1, 0.0, -0.0, torch.inf, -torch.inf, torch.nan]
    yield case(x, torch.tensor(divisors, dtype=dtype).reshape(-1, 1))
    yield case(new(dtype, 0, 3), torch.tensor([1, 2, 3], dtype=dtype))
    yield case(x[:4], torch.tensor([3, 2, 1, 5]))
    yield case(x[:4], torch.tensor(2.5))
    yield case(x[:4], torch.tensor(3, dtype=dtype))


def divisions_by_number(dtype: torch.dtype) -> Iterable[Sample]:
    x = dividends(dtype)
    yield from (case(x, number) for number in (3, 1, 2.5, *(() if dtype == torch.uint8 else (-3, -1, -2.5))))
    if dtype.is_floating_point:
        yield from (case(x, number) for number in (0, 0.1, torch.inf))


def rounded_to(mode: str | None, samples: Samples) -> Samples:
    """Without the smallest integer divided by -1 towards zero, on which torch itself dies."""

    def moded(dtype: torch.dtype) -> Iterable[Sample]:
        for (x, y), _ in samples(dtype):
            trapped = mode == "trunc" and not dtype.is_floating_point and x.shape == dividends(dtype).shape
            yield case(x[:-1] if trapped else x, y, rounding_mode=mode)

    return moded


def modes(samples: Samples) -> Samples:
    return lambda dtype: (s for mode in ("floor", "trunc", None) for s in rounded_to(mode, samples)(dtype))


def number_by_tensor(dtype: torch.dtype) -> Iterable[Sample]:
    x = new(dtype, 9, low=1, high=9)
    yield from (case(number, x) for number in (7, 7.5, *(() if dtype == torch.uint8 else (-7, -7.5))))


def same_dtype(samples: Samples) -> Samples:
    return lambda d: (s for s in samples(d) if all(x.dtype == d and x.dim() for x in s[0]))


QUOTIENTS = (
    Row(aten.fmod.Tensor, ("fmod",), divisions, NUMBERS),
    Row(aten.fmod.Scalar, (), divisions_by_number, NUMBERS),
    Row(prims.fmod.default, (), lambda d: [case(dividends(d), torch.full_like(dividends(d), 3))], NUMBERS),
    Row(aten.remainder.Tensor, ("remainder",), divisions, NUMBERS),
    Row(aten.remainder.Scalar, (), divisions_by_number, NUMBERS),
    Row(aten.remainder.Scalar_Tensor, (), number_by_tensor, NUMBERS),
    Row(prims.remainder.default, (), lambda d: [case(dividends(d), torch.full_like(dividends(d), 3))], NUMBERS),
    Row(aten.div.Tensor_mode, ("div.floor_rounding", "div.trunc_rounding"), modes(divisions), NUMBERS),
    Row(aten.div.Scalar_mode, (), modes(divisions_by_number), NUMBERS),
    Row(aten.floor_divide.default, ("floor_divide",), divisions, NUMBERS),
    Row(aten.floor_divide.Scalar, (), divisions_by_number, NUMBERS),
)


def exponents(dtype: torch.dtype) -> Iterable[Sample]:
    """torch's float16 kernel alone takes no square root, and so differs from its others at -0 and -inf."""
    edges = special(dtype)
    if dtype == torch.float16:
        edges = edges[~edges.signbit()]
    for exponent in (0, 0.5, 1, -1, -0.5, 1.5, 2, 2.0, 3, 4, -2):
        if dtype.is_floating_point or isinstance(exponent, float) or exponent >= 0:
            yield case(new(dtype, 20), exponent)
            yield case(edges, exponent)
            yield case(new(dtype), exponent)


BASES = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, -8.0, torch.inf, -torch.inf, torch.nan]
EXPONENTS = [[0.0], [-0.0], [2.0], [3.0], [-3.0], [0.5], [1 / 3], [torch.inf], [-torch.inf], [torch.nan]]


def powers(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 2, 30, low=0, high=4), new(dtype, 30, low=-3, high=3))
    yield case(torch.tensor(BASES, dtype=dtype), torch.tensor(EXPONENTS, dtype=dtype))
    yield case(new(dtype, 4), torch.tensor([0, 1, 2, 3]))
    yield case(torch.tensor([0, 1, 2, 3]), new(dtype, 4))
    yield case(new(dtype, 0, 2), new(dtype))


def powers_of_numbers(dtype: torch.dtype) -> Iterable[Sample]:
    """Those of integers wrap around in torch; of a negative exponent they are 0, but for those of 1 and -1."""
    if not dtype.is_floating_point:
        exponents = torch.tensor([0, 1, 2, 3, 5, 7, 8, 31, 62, 63, 64, 65, 100], dtype=dtype)
        if dtype != torch.uint8:
            exponents = torch.cat([exponents, torch.tensor([-1, -2, -3, torch.iinfo(dtype).min], dtype=dtype)])
        yield from (case(base, exponents) for base in (-1, 0, 1, 2, -2, 6, 2**16))
        return
    for base in (2, 10000.0, 1 / 3, -2, 0, 1):
        yield case(base, new(dtype, 30, low=-3, high=3))
        yield case(base, torch.tensor([0.0, 2.0, -3.0, torch.inf, torch.nan], dtype=dtype))
    yield case(10000.0, torch.arange(3))


def lengths(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 2, 30), new(dtype, 30))
    large = torch.finfo(dtype).max / 2
    ends = torch.tensor([0.0, -0.0, 3.0, large, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    yield case(ends, torch.tensor([0.0, -4.0, large, torch.inf, torch.nan], dtype=dtype).reshape(-1, 1))
    yield case(new(dtype, 3) * torch.finfo(dtype).tiny, new(dtype, 3) * torch.finfo(dtype).tiny)


def scattered(dtype: torch.dtype) -> Iterable[Sample]:
    """Over the whole range, powers of two and what is next to them."""
    yield case(special(dtype))
    yield case(new(dtype, 30) * torch.finfo(dtype).tiny)
    powers = torch.exp2(torch.arange(-14, 15)).to(dtype)
    eps = torch.finfo(dtype).eps
    yield case(torch.stack([powers, powers * (1 - eps), powers * (1 + eps)]))


POWERS = (
    Row(aten.pow.Tensor_Scalar, ("pow",), exponents, units=SUM),
    Row(aten.pow.Tensor_Tensor, ("float_power",), powers, FLOATS, SUM),
    Row(aten.pow.Scalar, (), powers_of_numbers, NUMBERS, SUM),
    Row(prims.pow.default, (), lambda d: [case(new(d, 9, low=0, high=4), new(d, 9))], FLOATS, SUM),
    Row(aten.square.default, ("square",), elements, units=ROUNDING),
    Row(aten.hypot.default, ("hypot",), lengths, FLOATS, ROUNDING),
    Row(prims.hypot.default, (), alike, FLOATS, ROUNDING),
    Row(aten.frexp.Tensor, ("frexp",), scattered, (torch.float32, *HALF)),
    Row(prims.frexp.default, (), scattered, (torch.float32, *HALF)),
    Row(aten.ldexp.Tensor, ("ldexp",), shifts, units=ROUNDING),
)

ROWS = (*SUMS, *QUOTIENTS, *POWERS)
