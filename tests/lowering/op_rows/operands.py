"""The operands of what works element by element."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from op_rows.row import Sample, Samples, case, new, special


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
    if dtype == torch.uint8:
        yield from (case(special(dtype), number) for number in (-1, 300))


def binary(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(*pair) for pair in pairs(dtype))


def tensor_pairs(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(x, y) for x, y in pairs(dtype) if isinstance(y, Tensor))


def alike(dtype: torch.dtype) -> Iterable[Sample]:
    """Of one dtype and one shape, as prims take them."""
    yield case(new(dtype, 2, 3), new(dtype, 2, 3))
    yield case(special(dtype), special(dtype).flip(0))
    yield case(new(dtype), new(dtype))


def elements(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(special(dtype))
    yield from (case(new(dtype, *size)) for size in ((), (0, 2), (2, 3, 5), (300,)))
    yield case(new(dtype, 4, 3).t())


def few_elements(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(special(dtype))
    yield case(new(dtype, 2, 3))


def within(low: float, high: float, magnitudes: tuple[float, ...] = (1e-2, 1e-4, 1e-7)) -> Samples:
    """Moderate numbers, and close to zero those of one magnitude at a time; infinities and NaN."""

    def samples(dtype: torch.dtype) -> Iterable[Sample]:
        if not dtype.is_floating_point:
            yield case(new(dtype, 9, low=max(0, low), high=high + 1) if dtype != torch.bool else new(dtype, 9))
            return
        yield case(new(dtype, 300, low=low, high=high))
        yield case(torch.tensor([0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan], dtype=dtype))
        for magnitude in magnitudes:
            near = torch.tensor([magnitude, -magnitude, 0.6 * magnitude], dtype=dtype)
            yield case(near[(near >= low) & (near <= high)])

    return samples


def gradients(dtype: torch.dtype) -> Iterable[Sample]:
    yield from (case(new(dtype, *size), new(dtype, *size)) for size in ((), (0, 2), (2, 3, 5), (300,)))
    yield case(torch.ones_like(special(dtype)), special(dtype))
    yield case(special(dtype), torch.ones_like(special(dtype)))


def finite_gradients(dtype: torch.dtype, edges: tuple[float, ...] = ()) -> Iterable[tuple[Tensor, Tensor]]:
    """Where kinks are: at zero and at ``edges``; a derivative at NaN is one thing or another in torch itself."""
    yield from ((new(dtype, *size), new(dtype, *size)) for size in ((), (0, 2), (300,)))
    kinks = torch.tensor([0.0, -0.0, 0.5, -0.5, 20.0, -20.0, torch.inf, -torch.inf, *edges], dtype=dtype)
    yield new(dtype, len(kinks)), kinks
