"""How torch's kernels round, so that lowerings of several ONNX nodes round alike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder

HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A lowering whose half-precision operands enter as float32 and whose results are rounded once, at the end.

    torch's own kernels compute so (their ``opmath`` type); rounding after each ONNX node would add error of our own.
    """

    @functools.wraps(function)
    def lowered(op: Builder, *args: Any, **kwargs: Any) -> Any:
        raised = [raise_half(op, arg) for arg in args]
        raised_kwargs = {name: raise_half(op, arg) for name, arg in kwargs.items()}
        result = function(op, *raised, **raised_kwargs)
        if not isinstance(result, tuple):
            return op.cast(result, op.result.dtype)
        return tuple(v if v is None else op.cast(v, fake.dtype) for v, fake in zip(result, op.result, strict=True))

    return lowered


def raise_half(op: Builder, arg: Any) -> Any:
    """``arg`` as float32 where it is an ONNX value in half precision, else as it is."""
    if not isinstance(arg, ir.Value) or arg.dtype not in HALF:
        return arg
    op.computing_in(torch.float32)
    raised = op.cast(arg, torch.float32)
    raised.meta.update(arg.meta)
    return raised


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which torch computes a result of ``dtype``: float32 for the half-precision ones."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def is_exact(number: float | int | bool, dtype: torch.dtype) -> bool:
    """Whether ``dtype`` holds the Python number without rounding it."""
    return torch.tensor(number, dtype=torch.float64).to(dtype).item() == number
