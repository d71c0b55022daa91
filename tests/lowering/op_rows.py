"""One row an ATen overload: where its samples come from, the dtypes it is tested in and what counts as equal.

``infos`` names operators of torch's own sample collection (``op_db``) whose forward or backward reaches the overload,
``own`` adds samples that nothing there covers. ``units`` is the tolerance in units of the last place of the
largest element, 0 where values are only moved or chosen and so must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from op_calls import Call, Target, recorded
from torch import Tensor
from torch.testing import make_tensor

aten = torch.ops.aten
prims = torch.ops.prims

HALF = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, torch.float64, *HALF)
INTS = (torch.int64, torch.int32, torch.uint8)
BOOL = (torch.bool,)
ALL = (*FLOATS, *INTS, *BOOL)
ROUNDING = 4.0
"""A few operations, each rounded on its own."""
SUM = 8.0
MATMUL = 16.0

Sample = tuple[tuple[Any, ...], dict[str, Any]]
Samples = Callable[[torch.dtype], Iterable[Sample]]


def case(*args: Any, **kwargs: Any) -> Sample:
    return args, kwargs


def nothing(dtype: torch.dtype) -> Iterable[Sample]:
    return ()


@dataclass(frozen=True)
class Row:
    """``scale`` is the size that the largest element counts as at least: that of the terms where they cancel, 1
    where the kernel is accurate to the last place of 1 only. ``skip`` tells which recorded calls are left out,
    ``reason`` why.
    """

    target: Target
    infos: tuple[str, ...] = ()
    own: Samples = nothing
    dtypes: tuple[torch.dtype, ...] = ALL
    units: float = 0.0
    scale: float = 0.0
    skip: Callable[[Call], bool] = field(default=lambda call: False)
    reason: str = ""

    def calls(self, dtype: torch.dtype) -> Iterator[Call]:
        torch.manual_seed(0)
        for args, kwargs in self.own(dtype):
            yield Call(self.target, args, kwargs)
        for info in self.infos:
            yield from (call for call in recorded(self.target, info, dtype) if not self.skip(call))


def new(dtype: torch.dtype, *shape: int, low: float | None = None, high: float | None = None) -> Tensor:
    return make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)


def special(dtype: torch.dtype) -> Tensor:
    """The values at which kernels go wrong: zeros of both signs, what overflows, what is not a number."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return torch.tensor([0, 1, 2, 3, 7, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype=dtype)
    limits = torch.finfo(dtype)
    finite = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 20.0, -20.0, 100.0, -100.0, limits.max, limits.min, limits.tiny]
    return torch.tensor([*finite, torch.inf, -torch.inf, torch.nan], dtype=dtype)


# Creation.

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


CREATION = (
    Row(aten.full.default, ("full",), filled_default),
    Row(aten.zeros.default, ("zeros",), sized),
    Row(aten.ones.default, ("ones",), sized),
    Row(aten.new_zeros.default, ("new_zeros",), new_sized),
    Row(aten.new_ones.default, ("new_ones",), new_sized),
    Row(aten.new_full.default, ("new_full",), new_filled),
    Row(aten.zeros_like.default, ("zeros_like",), like),
    Row(aten.ones_like.default, ("ones_like",), like),
    Row(aten.full_like.default, ("full_like",), filled_like),
    Row(aten.scalar_tensor.default, ("scalar_tensor",), scalar_tensor),
    Row(aten.arange.default, ("arange",), arange, (*FLOATS, *INTS), 1),
    Row(aten.arange.start, ("arange",), arange_start, (*FLOATS, *INTS), 1),
    Row(aten.arange.start_step, ("arange",), arange_step, (*FLOATS, *INTS), 1),
)


# Arithmetic.


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
    Row(prims.div.default, (), lambda d: [case(new(d, 2, 3), new(d, 2, 3))], FLOATS, ROUNDING),
    Row(aten.div.Scalar, (), numbers, units=ROUNDING),
)


# Functions of one tensor.


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


# Derivatives of activations: (gradient, input or output).


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


# Comparisons, logic and choice.


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


# Casts and copies.


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


# Reductions.

DIMS: tuple[Any, ...] = ([0], [-1], [0, 2], [-2, 0], [], None)


def reduced(dtype: torch.dtype, *, none: bool = True, **kwargs: Any) -> Iterable[Sample]:
    for dims in DIMS[: None if none else -1]:
        yield from (case(new(dtype, 2, 3, 5), dims, keepdim, **kwargs) for keepdim in (False, True))
    yield from (case(new(dtype), dims, **kwargs) for dims in ([0], [-1], []))
    yield case(new(dtype, 3, 0), [0], **kwargs)
    if dtype.is_floating_point:
        yield case(special(dtype), [0], **kwargs)


def sums(dtype: torch.dtype) -> Iterable[Sample]:
    yield from reduced(dtype)
    yield case(new(dtype, 2, 3), [1], dtype=torch.uint8)
    yield case(new(dtype, 3, 0), [1])
    yield from (case(new(dtype, 2, 3), [0], dtype=to) for to in (torch.float32, torch.int64))
    yield case(torch.full([3], 2**24 + 1), [0])


def all_sums(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *size)) for size in ((), (0,), (2, 3), (2000,)))
    yield case(new(dtype, 3), dtype=torch.float64)
    yield case(torch.full([3], 2**40 + 1))


def means(dtype: torch.dtype) -> Iterable[Sample]:
    yield from reduced(dtype)
    yield case(new(dtype, 3, 0), [1])
    yield case(new(dtype, 3, 2), [1], dtype=torch.float32)


def all_means(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *size)) for size in ((), (0,), (2, 3), (2000,)))


def running_sums(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3, 5), dim) for dim in (0, 1, -1))
    yield case(new(dtype), 0)
    yield case(new(dtype, 0, 2), 0)
    yield from (case(new(dtype, 4), 0, dtype=to) for to in (torch.float32, torch.uint8))
    yield case(torch.full([4], 2**24 + 1), 0)


def spreads(dtype: torch.dtype) -> Iterable[Sample]:
    for dims in ([0], [0, 2], [0, 1, 2]):
        yield from (case(new(dtype, 2, 3, 5), dims, correction) for correction in (0, 1, 2))
    yield case(new(dtype, 1, 3), [0], 0)


REDUCTION = (
    Row(aten.sum.dim_IntList, ("sum",), sums, units=SUM),
    Row(aten.sum.default, ("sum",), all_sums, units=SUM),
    Row(prims.sum.default, (), lambda d: (case(new(d, 2, 3, 5), dims) for dims in ([0], [0, 2])), FLOATS, SUM),
    Row(aten.mean.dim, ("mean",), means, FLOATS, SUM),
    Row(aten.mean.default, ("mean",), all_means, FLOATS, SUM),
    Row(prims.var.default, ("var",), spreads, FLOATS, SUM),
    Row(aten.amax.default, ("amax",), lambda d: reduced(d, none=False)),
    Row(aten.amin.default, ("amin",), lambda d: reduced(d, none=False)),
    Row(aten.cumsum.default, ("cumsum",), running_sums, units=SUM),
)


# Matrices.


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


MATRICES = (
    Row(aten.mm.default, ("mm",), products, (*FLOATS, *INTS), MATMUL),
    Row(aten.bmm.default, ("bmm",), lambda d: products(d, 2), (*FLOATS, *INTS), MATMUL),
    Row(aten.addmm.default, ("addmm",), biased_products, (*FLOATS, *INTS), MATMUL),
)


# Data movement.


def views(dtype: torch.dtype) -> Iterable[Sample]:
    for shape, size in (
        ((2, 3), [6]),
        ((2, 3), [-1, 2]),
        ((), [1, 1]),
        ((1,), []),
        ((0, 3), [3, 0]),
        ((2, 0), [0, 5]),
        ((2, 0, 3), [2, -1, 3]),
    ):
        yield case(new(dtype, *shape), size)


def expansions(dtype: torch.dtype) -> Iterable[Sample]:
    for shape, size in (
        ((3, 1), [3, 4]),
        ((3, 1), [-1, 4]),
        ((3,), [2, -1]),
        ((), [2, 3]),
        ((), []),
        ((1, 3), [0, 3]),
        ((0, 1), [-1, 2]),
        ((1,), [1]),
    ):
        yield case(new(dtype, *shape), size)


def broadcasts(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 2, 3), [2, 4, 3], [0, 2])
    yield case(new(dtype, 2, 1), [2, 3], [0, 1])
    yield case(new(dtype), [2, 1], [])


def squeezed(dtype: torch.dtype, *dims: Any) -> Iterable[Sample]:
    yield from (case(new(dtype, 1, 3, 1), dim) for dim in dims)
    yield from (case(new(dtype), dim) for dim in dims[:1])


def joined(dtype: torch.dtype) -> Iterable[Sample]:
    x, y = new(dtype, 2, 3), new(dtype, 2, 3)
    yield from (case([x, y], dim) for dim in (0, 1, -1))
    yield case([x, new(dtype, 0), y], 1)
    yield case([new(dtype, 0), new(dtype, 0)])
    yield case([x])
    yield case([x, new(dtype, 2, 0)], 1)
    yield from (case([x, new(other, 1, 3)]) for other in (torch.float32, torch.int64, torch.bool))
    yield case([new(torch.float64, 0), x])
    yield case([x, x])


def slices(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 5, 3))
    for start, end, step in SLICES:
        yield from (case(new(dtype, 5, 5), dim, start, end, step) for dim in (0, -1))


SLICES = (
    (1, 3, 1),
    (None, 4, 2),
    (1, None, 3),
    (-2, 2**63 - 1, 1),
    (-5, -1, 2),
    (-9, 9, 2),
    (3, 1, 1),
    (7, 9, 1),
    (4, 5, 5),
    (0, 5, 7),
)


def slice_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for start, end, step in SLICES:
        first, last = start or 0, 2**63 - 1 if end is None else end
        for dim in (0, -1):
            grad = aten.slice.Tensor(new(dtype, 5, 5), dim, start, end, step)
            yield case(grad, [5, 5], dim, first, last, step)
    yield case(new(dtype, 0, 2), [0, 2], 0, 0, 2**63 - 1, 1)


def picked(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3), *place) for place in ((0, 1), (1, -1), (-1, 2), (-2, -2)))
    yield case(new(dtype, 3), 0, 1)


def pick_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 3), [2, 3], 0, index) for index in (0, 1, -1, -2))
    yield case(new(dtype, 2), [2, 3], -1, -1)
    yield case(new(dtype), [3], 0, 1)


def parts(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 5, 4), size, dim) for size, dim in ((2, 0), (2, 1), (3, -1), (9, 0), (1, 1)))
    yield case(new(dtype, 0, 4), 2)


def sized_parts(dtype: torch.dtype) -> Iterable[Sample]:
    for sizes, dim in (([2, 3], 0), ([1, 0, 3], -1), ([5], 0), ([1, 1, 2], 1)):
        yield case(new(dtype, 5, 4), sizes, dim)


def triangles(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 4, 5), diagonal) for diagonal in (0, 1, -2, 9, -9))
    yield case(new(dtype, 2, 3, 3))
    yield case(new(dtype, 0, 3))


MOVEMENT = (
    Row(aten.view.default, ("view",), views),
    Row(aten._unsafe_view.default, (), views),
    Row(aten.reshape.default, (), views),
    Row(aten.unsqueeze.default, ("unsqueeze",), lambda d: (case(new(d, 2, 3), i) for i in (0, 1, 2, -1, -3))),
    Row(aten.squeeze.dim, ("squeeze",), lambda d: squeezed(d, 0, 1, -1)),
    Row(aten.squeeze.dims, ("squeeze.multiple",), lambda d: squeezed(d, [0], [0, 2], [1], [-1, 0], [])),
    Row(aten.t.default, ("t",), lambda d: (case(new(d, *size)) for size in ((2, 3), (3,), (), (0, 2)))),
    Row(aten.transpose.int, ("transpose",), lambda d: (case(new(d, 2, 3, 4), *p) for p in ((0, 1), (-1, 0), (1, 1)))),
    Row(aten.permute.default, ("permute",), lambda d: (case(new(d, 2, 3, 0), p) for p in ([0, 2, 1], [-1, 0, 1]))),
    Row(aten.expand.default, ("expand",), expansions),
    Row(prims.broadcast_in_dim.default, (), broadcasts),
    Row(aten.cat.default, ("cat",), joined),
    Row(aten.slice.Tensor, ("__getitem__",), slices),
    Row(aten.select.int, ("select",), picked),
    Row(aten.slice_backward.default, ("__getitem__",), slice_gradients),
    Row(aten.select_backward.default, ("select",), pick_gradients),
    Row(aten.split.Tensor, ("split",), parts),
    Row(aten.split_with_sizes.default, ("split_with_sizes",), sized_parts),
    Row(aten.tril.default, ("tril",), triangles),
    Row(aten.triu.default, ("triu",), triangles),
)


# Indices and tables.


def by_index(dtype: torch.dtype) -> Iterable[Sample]:
    x = new(dtype, 3, 4, 5)
    i, j = torch.tensor([0, -1, 2]), torch.tensor([1, -4, 0])
    column = torch.tensor([[0], [-2]])
    for indices in (
        [i],
        [None, i],
        [None, None, column],
        [i, j],
        [None, i, j],
        [i, None, j],
        [column, j],
        [None, column, i],
        [i, j, i],
        [torch.tensor(1), None, i],
        [torch.tensor(-1)],
        [i.to(torch.int32), j.to(torch.int32)],
        [i.to(torch.int32), j],
        [i[:0], j[:0]],
        [None, i[:0]],
        [i, torch.tensor([2])],
    ):
        yield case(x, indices)
    yield case(new(dtype, 0, 4), [None, i])


def is_masked(call: Call) -> bool:
    return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in call.args[1])


def embedded(dtype: torch.dtype) -> Iterable[Sample]:
    table = new(dtype, 5, 3)
    yield from (case(table, torch.tensor(index)) for index in (2, [4, 0, 4], [[0, 1], [2, 2]]))
    yield case(table, torch.tensor([1, 3], dtype=torch.int32), 1)
    yield case(table, torch.zeros(0, 2, dtype=torch.int64))


def table_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    repeated = torch.tensor([[0, 3, 3], [3, 1, 0]])
    for padding in (-1, 3, 0):
        yield from (case(new(dtype, 2, 3, 4), repeated, 5, padding, by_frequency) for by_frequency in (False, True))
    yield case(new(dtype, 4), torch.tensor(1), 5, -1, False)
    yield case(new(dtype, 0, 4), torch.zeros(0, dtype=torch.int64), 5, -1, False)
    yield case(new(dtype, 3, 4), repeated[0].to(torch.int32), 5, -1, False)
    yield case(new(dtype, 500, 2), torch.randint(3, (500,)), 3, -1, False)


INDEXING = (
    Row(aten.index.Tensor, ("__getitem__",), by_index, skip=is_masked, reason="a mask: its shape depends on values"),
    Row(aten.embedding.default, ("nn.functional.embedding",), embedded, FLOATS),
    Row(aten.embedding_dense_backward.default, ("nn.functional.embedding",), table_gradients, FLOATS, SUM),
)


# Softmax and attention.


def softmax_inputs(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, 2, 3, 5), dim, False) for dim in (0, 1, -1))
    yield case(new(dtype), 0, False)
    yield case(new(dtype, 0, 2), 1, False)
    yield case(torch.tensor([[0.0, -torch.inf], [-torch.inf, -torch.inf], [torch.inf, 0.0]], dtype=dtype), 1, False)
    yield case(new(dtype, 2, 100, low=-1000, high=1000), 1, False)


def softmax_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for (x, dim, _), _ in softmax_inputs(dtype):
        y = aten._softmax.default(x, dim, False)
        yield case(torch.randn_like(y), y, dim, dtype)


def attention_inputs(dtype: torch.dtype) -> Iterable[Sample]:
    for batch, heads, length, other, width in ((2, 4, 6, 6, 8), (1, 2, 3, 7, 4), (1, 2, 7, 3, 4), (2, 1, 1, 5, 16)):
        query, key = torch.randn(batch, heads, length, width), torch.randn(batch, heads, other, width)
        qkv = [x.to(dtype) for x in (query, key, torch.randn_like(key))]
        yield case(*qkv)
        yield case(*qkv, scale=0.3)
        yield case(*qkv, 0.0, True)
        for shape in ((batch, heads, length, other), (1, 1, length, other), (length, other)):
            mask = torch.randn(shape).to(dtype)
            yield case(*qkv, attn_mask=mask)
            hidden = mask.masked_fill(torch.ones(length, other, dtype=torch.bool).triu(1), -torch.inf)
            yield case(*qkv, attn_mask=hidden)
            hidden = hidden.clone()
            hidden[..., 0, :] = -torch.inf
            yield case(*qkv, attn_mask=hidden)
    grouped = [torch.randn(2, heads, 6, 8).to(dtype) for heads in (4, 2, 2)]
    yield case(*grouped)
    yield case(*grouped, 0.0, True)


def attention_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for args, kwargs in attention_inputs(dtype):
        query, key, value, *rest = args
        out, logsumexp = aten._scaled_dot_product_flash_attention_for_cpu.default(*args, **kwargs)
        dropout, causal = rest or (0.0, False)
        grad = torch.randn_like(out)
        yield case(grad, query, key, value, out, logsumexp, dropout, causal, **kwargs)


SDPA = ("nn.functional.scaled_dot_product_attention",)
ATTENTION = (
    Row(aten._softmax.default, ("softmax",), softmax_inputs, FLOATS, SUM),
    Row(aten._softmax_backward_data.default, ("softmax",), softmax_gradients, FLOATS, SUM, scale=1),
    Row(aten._scaled_dot_product_flash_attention_for_cpu.default, SDPA, attention_inputs, FLOATS, MATMUL),
    Row(
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
        SDPA,
        attention_gradients,
        FLOATS,
        MATMUL,
        scale=16,
    ),
)

ROWS = (
    *CREATION,
    *ARITHMETIC,
    *UNARY,
    *DERIVATIVES,
    *COMPARISON,
    *LOGIC,
    *COPIES,
    *REDUCTION,
    *MATRICES,
    *MOVEMENT,
    *INDEXING,
    *ATTENTION,
)
