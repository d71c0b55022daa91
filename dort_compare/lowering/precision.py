"""How torch's kernels round, so that lowerings of several ONNX nodes round alike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.dtypes import HALF, ONNX_HALF
from dort_compare.lowering.builder import Builder

NARROW = (ir.DataType.BOOL, ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.INT16)


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


def in_int64(function: Callable[..., Any]) -> Callable[..., Any]:
    """A lowering whose bools and integers narrower than 32 bits enter as int64: ONNX has few kernels for them.

    The result wraps around on its way back to the narrow dtype, as torch's does.
    """

    @functools.wraps(function)
    def lowered(op: Builder, *args: Any, **kwargs: Any) -> ir.Value:
        raised = [raise_narrow(op, arg) for arg in args]
        result = function(op, *raised, **kwargs)
        return result if raised == list(args) else op.cast(result, op.result.dtype)

    return lowered


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """A lowering whose operands enter as float64 and whose result is rounded once, at the end.

    For formulas of many ONNX nodes, whose roundings would otherwise add up. Operands are first cast to torch's dtype.
    """

    @functools.wraps(function)
    def lowered(op: Builder, *args: Any, **kwargs: Any) -> ir.Value:
        dtype = op.result.dtype
        if dtype != torch.float64:
            op.computing_in(torch.float64)
        wide = [op.cast(op.cast(arg, dtype), torch.float64) if isinstance(arg, ir.Value) else arg for arg in args]
        return op.cast(function(op, *wide, **kwargs), dtype)

    return lowered


def raise_narrow(op: Builder, arg: Any) -> Any:
    """``arg`` as int64 where it is an ONNX value of bools or narrow integers, else as it is."""
    if not isinstance(arg, ir.Value) or arg.dtype not in NARROW:
        return arg
    raised = op.cast(arg, torch.int64)
    raised.meta.update(arg.meta)
    return raised


def raise_half(op: Builder, arg: Any) -> Any:
    """``arg`` as float32 where it is an ONNX value in half precision, else as it is."""
    if not isinstance(arg, ir.Value) or arg.dtype not in ONNX_HALF:
        return arg
    op.computing_in(torch.float32)
    raised = op.cast(arg, torch.float32)
    raised.meta.update(arg.meta)
    return raised


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which torch computes a result of ``dtype``: float32 for the half-precision ones."""
    return torch.float32 if dtype in HALF else dtype


def is_exact(number: float | int | bool, dtype: torch.dtype) -> bool:
    """Whether ``dtype`` holds the Python number without rounding it."""
    return torch.tensor(number, dtype=torch.float64).to(dtype).item() == number
