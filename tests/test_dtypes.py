"""Names of dtypes, which round more, and which values are floating or in half precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dort_compare.dtypes import as_held, coarsened, coarsest, dtype_name, is_coarser, is_floating_tensor, is_half_tensor


def test_a_dtype_is_named_without_the_package() -> None:
    assert [dtype_name(dtype) for dtype in (torch.float32, torch.bfloat16)] == ["float32", "bfloat16"]


@pytest.mark.parametrize(
    ("value", "floating", "half"),
    [
        (torch.ones(2), True, False),
        (torch.ones(2, dtype=torch.float16), True, True),
        (torch.ones(2, dtype=torch.bfloat16), True, True),
        (torch.ones(2, dtype=torch.complex64), False, False),
        (torch.ones(2, dtype=torch.int64), False, False),
        (1.0, False, False),
        (torch.float16, False, False),
        (None, False, False),
    ],
    ids=str,
)
def test_only_tensors_are_floating_or_half(value: Any, floating: bool, half: bool) -> None:
    assert (is_floating_tensor(value), is_half_tensor(value)) == (floating, half)


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ([], None),
        ([torch.int64, torch.bool], None),
        ([torch.float64, torch.float32], torch.float32),
        ([torch.float32, torch.int64, torch.float16], torch.float16),
        ([torch.bfloat16, torch.float16], torch.bfloat16),
    ],
)
def test_the_coarsest_floating_dtype(dtypes: list[torch.dtype], expected: torch.dtype | None) -> None:
    assert coarsest(dtypes) == expected


def test_a_floating_dtype_is_coarsened_to_a_precision() -> None:
    assert coarsened(torch.float32, torch.bfloat16) == torch.bfloat16
    assert coarsened(torch.float16, torch.float32) == torch.float16
    assert coarsened(torch.complex64, None) == torch.float32
    assert coarsened(torch.int64, torch.float16) is None


def test_only_floating_dtypes_are_coarser_than_others() -> None:
    assert is_coarser(torch.float16, torch.float32)
    assert is_coarser(torch.bfloat16, torch.float16)
    assert not is_coarser(torch.float32, torch.float16)
    assert not is_coarser(torch.float32, torch.float32)
    assert not is_coarser(torch.int8, torch.float32)


def test_a_value_is_held_rounded_and_finite_where_it_was() -> None:
    value = torch.tensor([1.0001, -3e38, 1e5, torch.inf, -torch.inf, 1e-9])
    held = as_held(value, torch.float16)
    assert held.dtype == torch.float32
    assert held.tolist() == [1.0, -65504.0, 65504.0, torch.inf, -torch.inf, 0.0]
    assert as_held(value.half(), torch.bfloat16).dtype == torch.float16
