"""What two dtypes both hold."""

from __future__ import annotations

import itertools

import pytest
import torch

from dort_compare.align.two_dtypes import beyond, holds_all, rounded

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def of_every_size() -> torch.Tensor:
    """Numbers of either sign from below the smallest of half precision to beyond the largest."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4096, generator=generator).double() * torch.logspace(-12, 12, 4096, dtype=torch.float64)


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(FLOATS, 2)))
def test_what_is_rounded_is_held_by_both(one: torch.dtype, other: torch.dtype) -> None:
    found = rounded(of_every_size(), [one, other])
    assert found.dtype == one
    assert found.double().abs().nan_to_num().max() > 0
    assert torch.equal(found.to(other).double().nan_to_num(), found.double().nan_to_num())


@pytest.mark.parametrize(("one", "other"), [(torch.float16, torch.bfloat16), (torch.bfloat16, torch.float16)])
def test_what_one_dtype_holds_and_another_rounds_beyond_it_is_infinite(one: torch.dtype, other: torch.dtype) -> None:
    numbers = torch.tensor([65280.0, 65504.0, -65504.0, 7e4, torch.inf])
    assert rounded(numbers, [one, other]).tolist() == [65280, torch.inf, -torch.inf, torch.inf, torch.inf]


def test_which_dtype_holds_all_of_another() -> None:
    held = {(one, other) for one, other in itertools.permutations(FLOATS, 2) if holds_all(one, other)}
    assert held == {
        (torch.float32, torch.float16),
        (torch.float32, torch.bfloat16),
        (torch.float64, torch.float16),
        (torch.float64, torch.bfloat16),
        (torch.float64, torch.float32),
    }


@pytest.mark.parametrize(
    ("numbers", "one", "other", "found"),
    [
        ([0, 2**31 - 1, -(2**31)], torch.int64, torch.int32, None),
        ([0, 2**31], torch.int64, torch.int32, 2**31),
        ([0, -1], torch.int64, torch.uint64, -1),
        ([0, 2**63 - 1], torch.int64, torch.uint64, None),
        ([], torch.int64, torch.int8, None),
    ],
)
def test_an_integer_beyond_a_dtype(numbers: list[int], one: torch.dtype, other: torch.dtype, found: int | None) -> None:
    assert beyond(torch.tensor(numbers, dtype=one), other) == found
