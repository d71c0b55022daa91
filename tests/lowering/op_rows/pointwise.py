"""Element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from op_rows.row import ALL, BOOL, FLOATS, HALF, INTS, ROUNDING, SUM, Row, Sample, Samples, case, new, special

aten = torch.ops.aten
prims = torch.ops.prims


def pairs(dtype: torch.dtype) -> Iterator[tuple[Any, Any]]:
    """Operands that broadcast, that promote, and Python numbers."""
    yield new(dtype, 2, 3), new(dtype, 3)
    yield new(dtype), new(dtype, 2)
    yield new(dtype), new(dtype)
    yield new(dtype, 0, 3), new(dtype, 3)
    yield special(dtype), special(dtype).flip(0)
    yield from ((new(dtype, 2, 3), new(other, 3)) for other in (torch.float32, torch.float64, torch.int64, torch.bool))
    yield from ((new(dtype, 4), torch.tensor(number)) for number in (2.3, 3, True))
    yield torch.tensor(1 / 3), new(dtype, 4)
    yield torch.tensor(7), new(dtype, 4)
    yield from ((new(dtype, 4), number) for number in (3, 1 / 3))


def numbers(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3), number) for number in (3, 1 / 3, True))
    yield case(special(dtype), 2)
    yield case(new(dtype), 2)


def binary(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(*pair) for pair in pairs(dtype))


def with_alpha(dtype: torch.dtype) -> Iterable[Sample]:
    yield from binary(dtype)
    if dtype == torch.bool:
        yield from (case(new(dtype, 9), new(dtype, 9), alpha=alpha) for alpha in (True, False))
    yield case(new(dtype, 2, 3), new(torch.float32, 3), alpha=2.5)
    yield case(new(dtype, 2, 3), new(torch.int64, 3), alpha=3)
    yield case(new(torch.int64, 3), 4, alpha=3)
    if dtype.is_floating_point:
        yield case(new(dtype, 64), new(dtype, 64), alpha=1 / 3)


def number_with_alpha(dtype: torch.dtype) -> Iterable[Sample]:
    yield from numbers(dtype)
    yield case(new(dtype, 2, 3), 2.5, 0.5)
    yield case(new(dtype, 2, 3), 2, 3)


def no_bool(samples: Samples) -> Samples:
    """Without the operands of which torch refuses to take a difference."""

    def allowed(sample: Sample) -> bool:
        return not any(x.dtype == torch.bool if isinstance(x, Tensor) else isinstance(x, bool) for x in sample[0])

    return lambda dtype: (sample for sample in samples(dtype) if allowed(sample))


ARITHMETIC = (
    Row(aten.add.Tensor, ("add",), with_alpha, units=ROUNDING),
    Row(aten.add.Scalar, (), number_with_alpha, units=ROUNDING),
    Row(aten.sub.Tensor, ("sub",), no_bool(with_alpha), (*FLOATS, *INTS), ROUNDING),
    Row(aten.sub.Scalar, (), no_bool(number_with_alpha), (*FLOATS, *INTS), ROUNDING),
    Row(aten.mul.Tensor, ("mul",), binary, units=ROUNDING),
    Row(aten.mul.Scalar, (), numbers, units=ROUNDING),
    Row(aten.div.Tensor, ("div.no_rounding_mode",), binary, units=ROUNDING),
    Row(aten.true_divide.Tensor, (), binary, units=ROUNDING),
    Row(prims.div.default, (), lambda d: [case(new(d, 2, 3), new(d, 2, 3))], FLOATS, ROUNDING),
    Row(aten.div.Scalar, (), numbers, units=ROUNDING),
)


def elements(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(special(dtype))
    yield from (case(new(dtype, *size)) for size in ((), (0, 2), (2, 3, 5), (300,)))
    yield case(new(dtype, 4, 3).t())


def small_elements(dtype: torch.dtype) -> Iterable[Sample]:
    """Without the arguments at which sine and cosine are all rounding."""
    yield from (case(new(dtype, *size)) for size in ((), (0, 2), (2, 3, 5), (300,)))
    yield case(torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan]))


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


def clamped(dtype: torch.dtype) -> Iterable[Sample]:
    for low, high in ((1, 3), (None, 2), (2, None), (3, 1), (0.5, 2.5)):
        yield case(special(dtype), low, high)
        yield case(new(dtype), low, high)


UNARY = (
    Row(aten.cos.default, ("cos",), small_elements, units=ROUNDING),
    Row(aten.sin.default, ("sin",), small_elements, units=ROUNDING),
    Row(aten.erf.default, ("erf",), elements, (torch.float32, *HALF), ROUNDING),
    Row(aten.abs.default, ("abs",), elements, (*FLOATS, *INTS)),
    Row(aten.isnan.default, ("isnan",), elements),
    Row(aten.clamp.default, (), clamped, (*FLOATS, *INTS)),
    Row(aten.exp.default, ("exp",), elements, units=SUM),
    Row(aten.log.default, ("log",), elements, units=ROUNDING),
    Row(aten.reciprocal.default, ("reciprocal",), elements, units=ROUNDING),
    Row(aten.sigmoid.default, ("sigmoid",), elements, units=ROUNDING, scale=1),
    Row(aten.sqrt.default, ("sqrt",), elements, units=ROUNDING),
    Row(aten.rsqrt.default, ("rsqrt",), elements, units=ROUNDING),
    Row(aten.tanh.default, ("tanh",), elements, units=ROUNDING),
    Row(aten.neg.default, ("neg",), elements, (*FLOATS, *INTS)),
    Row(aten.relu.default, ("nn.functional.relu",), elements, (*FLOATS, *INTS)),
    Row(aten.pow.Tensor_Scalar, ("pow",), exponents, units=SUM),
    Row(aten.silu.default, ("nn.functional.silu",), elements, FLOATS, ROUNDING, scale=1),
)


def gradients(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *size), new(dtype, *size)) for size in ((), (0, 2), (2, 3, 5), (300,)))
    yield case(torch.ones_like(special(dtype)), special(dtype))
    yield case(special(dtype), torch.ones_like(special(dtype)))


def thresholds(dtype: torch.dtype) -> Iterable[Sample]:
    for grad, x in (args for args, _ in gradients(dtype)):
        yield from (case(grad, x, threshold) for threshold in (0, 0.3, -1))


DERIVATIVES = (
    Row(aten.silu_backward.default, ("nn.functional.silu",), gradients, FLOATS, ROUNDING, scale=16),
    Row(aten.sigmoid_backward.default, ("sigmoid",), gradients, FLOATS, ROUNDING),
    Row(aten.tanh_backward.default, ("tanh",), gradients, FLOATS, ROUNDING),
    Row(aten.threshold_backward.default, ("nn.functional.relu",), thresholds, (*FLOATS, *INTS)),
)


def tensor_pairs(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(x, y) for x, y in pairs(dtype) if isinstance(y, Tensor))


def compared(dtype: torch.dtype) -> Iterable[Sample]:
    yield from tensor_pairs(dtype)
    yield case(special(dtype), special(dtype))
    large = torch.tensor([2**24, 2**24 + 1, 2**53 + 1])
    yield case(large, large - 1)
    yield case(large, large.float())
    yield case(large, large.to(torch.int32))
    yield case(new(dtype, 3), large)


def compared_numbers(dtype: torch.dtype) -> Iterable[Sample]:
    yield from numbers(dtype)
    yield case(special(dtype), 0)
    yield case(special(dtype), 1.0)
    yield case(torch.tensor([2**24, 2**24 + 1, 2**53 + 1]), 2**24 + 1)
    yield case(torch.tensor([2**24, 2**24 + 1]), 2.0**24)
    yield case(torch.arange(3), 1.5)
    yield case(torch.tensor([0, 255], dtype=torch.uint8), 255)
    if dtype in FLOATS:
        yield case(torch.tensor([0.1, 0.3], dtype=dtype), 0.1)
        yield case(special(dtype), torch.inf)


def integers(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 2, 30), new(dtype, 30))
    yield case(new(dtype), new(dtype, 2))
    yield case(special(dtype), special(dtype).flip(0))
    yield case(new(dtype, 3), new(torch.int64, 3))
    yield case(new(dtype, 3), new(torch.bool, 3))


def integers_and_number(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 30), number) for number in (True, 1, 6, 0))
    yield case(special(dtype), 5)


def chosen(dtype: torch.dtype) -> Iterable[Sample]:
    condition = new(torch.bool, 4, 3)
    yield case(condition, special(dtype)[:2].repeat(3)[:3], new(dtype, 4, 3))
    yield from (case(condition, new(dtype, 4, 1), new(other, 3)) for other in (torch.float32, torch.int64, torch.bool))
    yield case(condition, new(dtype, 4, 3), torch.tensor(1 / 3))
    yield case(new(torch.bool), new(dtype), new(dtype))
    yield case(new(torch.bool, 0, 3), new(dtype), new(dtype, 3))


def chosen_alike(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(new(torch.bool, *size), new(dtype, *size), new(dtype, *size)) for size in ((), (0, 2), (4, 3)))


def masked(dtype: torch.dtype, fill: Callable[[Any], Any]) -> Iterable[Sample]:
    mask = new(torch.bool, 2, 1)
    yield from (case(new(dtype, 2, 3), mask, fill(number)) for number in (0, 1, True))
    yield case(new(dtype), new(torch.bool), fill(1))
    yield case(new(dtype), mask, fill(1))
    if dtype.is_floating_point:
        yield from (case(new(dtype, 2, 3), mask, fill(number)) for number in (-torch.inf, torch.nan, 1 / 3))
        yield case(new(dtype, 2, 3), mask, fill(torch.finfo(dtype).min))


COMPARISON = tuple(
    row
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for row in (
        Row(getattr(aten, name).Tensor, (name,), compared),
        Row(getattr(aten, name).Scalar, (name,), compared_numbers),
    )
)

BITWISE = tuple(
    row
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
    for row in (
        Row(getattr(aten, name).Tensor, (name,), integers, (*INTS, *BOOL)),
        Row(getattr(aten, name).Scalar, (), integers_and_number, (*INTS, *BOOL)),
    )
)

LOGIC = (
    *BITWISE,
    Row(aten.bitwise_not.default, ("bitwise_not",), elements, (*INTS, *BOOL)),
    Row(aten.logical_and.default, ("logical_and",), tensor_pairs),
    Row(aten.logical_or.default, ("logical_or",), tensor_pairs),
    Row(aten.logical_xor.default, ("logical_xor",), tensor_pairs),
    Row(aten.logical_not.default, ("logical_not",), elements),
    Row(aten.where.self, ("where",), chosen),
    Row(prims.where.default, (), chosen_alike),
    Row(aten.masked_fill.Scalar, ("masked_fill",), lambda d: masked(d, lambda x: x)),
    Row(aten.masked_fill.Tensor, ("masked_fill",), lambda d: masked(d, torch.tensor)),
)


def casts(dtype: torch.dtype) -> Iterator[tuple[Tensor, torch.dtype]]:
    for to in ALL:
        x = new(dtype, 100, low=0, high=100) if dtype != torch.bool else new(dtype, 100)
        yield x, to
        if to == torch.bool or (to.is_floating_point and dtype.is_floating_point):
            yield special(dtype), to
        if to in INTS and to != torch.uint8 and dtype not in (torch.bool, torch.uint8):
            yield new(dtype, 100, low=-100, high=100), to
    yield new(dtype), torch.float32
    yield new(dtype, 0, 2), torch.float16


LARGE = torch.tensor([2**24 + 1, 2**31, 2**53 + 1, -(2**40) - 3])
TIES = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 65519.0, 65520.0, 2**-25, 1e-8, 3.4e38])


def to_copies(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(x, dtype=to) for x, to in casts(dtype))
    yield case(new(dtype, 2, 3))
    yield from (case(TIES.to(torch.float64), dtype=to) for to in FLOATS)
    yield from (case(TIES, dtype=to) for to in FLOATS)
    yield from (
        case(LARGE, dtype=to) for to in (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8)
    )


def element_types(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(x, to) for x, to in casts(dtype))


COPIES = (
    Row(aten._to_copy.default, (), to_copies),
    Row(prims.convert_element_type.default, (), element_types),
    Row(aten.clone.default, ("clone",), elements),
    Row(aten.detach.default, (), elements),
    Row(aten.alias.default, (), elements),
    Row(aten.lift_fresh.default, (), elements),
    Row(aten.lift_fresh_copy.default, (), elements),
)

ROWS = (*ARITHMETIC, *UNARY, *DERIVATIVES, *COMPARISON, *LOGIC, *COPIES)
