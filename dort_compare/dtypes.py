"""Dtypes of torch: their names, and the values that have some of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeGuard

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import to_torch_dtype

HALF = (torch.float16, torch.bfloat16)
ONNX_HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_PRECISION = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def dtype_of_onnx(number: int) -> torch.dtype | None:
    """The dtype that ONNX has this number for, as 1 for float32; None where torch has none, as for strings."""
    try:
        return to_torch_dtype(ir.DataType(number))
    except (KeyError, TypeError, ValueError):
        return None


def dtype_name(dtype: torch.dtype) -> str:
    """The name without the package: "float32"."""
    return str(dtype).removeprefix("torch.")


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the parts of a complex one; a real one itself."""
    return dtype.to_real() if dtype.is_complex else dtype


def is_floating_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor of floating-point numbers."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def is_complex_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor of complex numbers."""
    return isinstance(value, torch.Tensor) and value.is_complex()


def is_half_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor in half precision."""
    return isinstance(value, torch.Tensor) and value.dtype in HALF


def infinite_from(dtype: torch.dtype) -> float:
    """From what size on a number of a floating dtype stands for infinity, as masks do: a quarter of its largest."""
    return torch.finfo(dtype).max / 4


def coarsest(dtypes: Iterable[torch.dtype]) -> torch.dtype | None:
    """The floating dtype of ``dtypes`` that rounds most, of complex ones that of the parts; None where none is."""
    known = [dtype for dtype in map(real_dtype, dtypes) if dtype in _PRECISION]
    return max(known, key=_PRECISION.index, default=None)


def coarsened(dtype: torch.dtype, precision: torch.dtype | None) -> torch.dtype | None:
    """A floating dtype, of a complex one that of the parts, or ``precision`` if that rounds more; None of others."""
    own = coarsest([dtype])
    return own and coarsest([own, precision or own])


def is_coarser(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Whether both are floating dtypes, and the first rounds more."""
    return dtype != other and {dtype, other} <= set(_PRECISION) and coarsest([dtype, other]) == dtype


def as_held(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``value`` (floating, any shape) as ``dtype`` holds it, in a dtype of its own: rounded, and finite where it was.

    What lies beyond the largest number of ``dtype`` becomes that, as converters make of constants.
    """
    largest = min(torch.finfo(each).max for each in (dtype, value.dtype))
    return torch.where(value.isinf(), value, value.clamp(-largest, largest)).to(dtype).to(value.dtype)


def in_parts(value: Any) -> Any:
    """A complex tensor as its real and imaginary parts, a last dimension of 2, as ONNX holds it; any other itself."""
    return torch.view_as_real(value.resolve_conj().resolve_neg()) if is_complex_tensor(value) else value
