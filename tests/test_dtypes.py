"""Names of dtypes, and which values are floating or in half precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dort_compare.dtypes import dtype_name, is_floating_tensor, is_half_tensor


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
