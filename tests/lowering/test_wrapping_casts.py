"""Integers that do not fit wrap around, behind a cast from a float too, which ONNX Runtime takes together with them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

NARROW = (torch.int32, torch.int16, torch.int8, torch.uint8)
VANISHING: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": lambda x: x.clone(),
    "plus 0": lambda x: x + 0,
    "times 1": lambda x: x * 1,
    "a cat of one": lambda x: torch.cat([x]),
    "expand": lambda x: x.expand(len(x)),
    "view": lambda x: x[None].squeeze(0).view(-1),
    "slice": lambda x: x[0:],
}
FLOATS = (torch.float64, torch.float32, torch.bfloat16)
NUMBERS = torch.tensor([0.0, 1.5, -1.5, 200.7, -70000.0, 3e9, -3e9, 1e12, -1e15, 2.0**62])
SUMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "dot": lambda x, y: x @ y,
    "mv": lambda x, y: x.expand(3, -1) @ y,
    "sum": lambda x, y: (x * y).sum(dtype=x.dtype),
    "sum_of_a_sum": lambda x, y: (x.sum() + y.sum()).to(x.dtype),
    "sum_then_cast": lambda x, y: x.sum().to(x.dtype),
}


@pytest.mark.parametrize(("dtype", "narrow"), [*itertools.product(FLOATS, NARROW)], ids=str)
def test_an_integer_cut_from_a_float_wraps_around(dtype: torch.dtype, narrow: torch.dtype) -> None:
    def cut(x: Tensor) -> Tensor:
        return x.long().to(narrow)

    x = NUMBERS.to(dtype)
    assert torch.equal(torch.compile(cut, backend="dort")(x), cut(x))


@pytest.mark.parametrize("name", VANISHING)
def test_what_changes_nothing_between_the_casts_changes_nothing(name: str) -> None:
    def cut(x: Tensor) -> Tensor:
        return VANISHING[name](x.long()).int()

    assert torch.equal(torch.compile(cut, backend="dort")(NUMBERS), cut(NUMBERS))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32], ids=str)
def test_integers_without_a_sign_wrap_around(dtype: torch.dtype) -> None:
    def cut(x: Tensor) -> Tensor:
        return x.long().to(dtype).long()

    assert torch.equal(torch.compile(cut, backend="dort")(NUMBERS), cut(NUMBERS))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_wraps_around(name: str, dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    x, y = torch.randint(limits.min, limits.max, (2, 40), dtype=dtype, generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.compile(SUMS[name], backend="dort")(x, y), SUMS[name](x, y))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod"])
def test_each_float_is_cast_before_it_is_added(name: str, dtype: torch.dtype) -> None:
    dim = (0,) if name.startswith("cum") else ()
    x = torch.tensor([3e9, 1.0, 3.0])

    def reduced(x: Tensor) -> Tensor:
        return getattr(x, name)(*dim, dtype=dtype)

    for each in (x, x.double(), x.bfloat16()):
        assert torch.equal(torch.compile(reduced, backend="dort", options={"fallback": False})(each), reduced(each))
