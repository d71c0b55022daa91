"""Dtypes of torch: their names, and the values that have some of them."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch

HALF = (torch.float16, torch.bfloat16)


def dtype_name(dtype: torch.dtype) -> str:
    """The name without the package: "float32"."""
    return str(dtype).removeprefix("torch.")


def is_floating_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor of floating-point numbers."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def is_half_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor in half precision."""
    return isinstance(value, torch.Tensor) and value.dtype in HALF


def infinite_from(dtype: torch.dtype) -> float:
    """From what size on a number of a floating dtype stands for infinity, as masks do: a quarter of its largest."""
    return torch.finfo(dtype).max / 4
