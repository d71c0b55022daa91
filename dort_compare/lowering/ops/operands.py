"""What the families that work element by element share: operands of mixed dtypes, brought to the one of the kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.dtypes import HALF
from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import NARROW, is_exact, opmath
from dort_compare.lowering.values import dtype_of, fake_of, is_symbolic_number

Number = int | float | bool
Operand = ir.Value | Number


def constant(op: Builder, number: Number, dtype: torch.dtype) -> ir.Value:
    """A Python number as torch casts it to ``dtype``: integers wrap around."""
    return op.const(_cast(number, dtype), dtype)


def _cast(number: Number, dtype: torch.dtype) -> Number:
    exact = torch.tensor(number, dtype=torch.float64) if isinstance(number, float) else torch.tensor(number)
    return exact.to(dtype).item()


def promoted(op: Builder, operands: Iterable[Operand], dtype: torch.dtype) -> tuple[ir.Value, ...]:
    """The operands as ONNX values of ``dtype``."""
    return tuple(op.cast(x, dtype) if isinstance(x, ir.Value) else constant(op, x, dtype) for x in operands)


def rounded(op: Builder, operand: Operand, dtype: torch.dtype) -> Operand:
    """The operand with no more digits than ``dtype`` has; a number stays one."""
    return op.cast(operand, dtype) if isinstance(operand, ir.Value) else _cast(operand, dtype)


def promoted_dtype(x: ir.Value, y: Operand) -> torch.dtype:
    """The dtype to which torch promotes the operands of a binary operator."""
    return torch.result_type(fake_of(x), fake_of(y) if isinstance(y, ir.Value) else y)


def kernel_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype nearest to ``dtype`` that holds all its values and for which ONNX Runtime has every kernel."""
    if dtype.is_floating_point:
        return opmath(dtype)
    return torch.int64 if ir.tensor_adapters.from_torch_dtype(dtype) in NARROW else dtype


def in_kernel_dtype(*, exact_numbers: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A lowering whose tensors and numbers enter in torch's common dtype, widened to one that ONNX Runtime computes in.

    The result is cast to torch's. Half precision is computed in float32 and rounded once; a Python number is rounded
    to half precision first unless ``exact_numbers``, as torch's kernels differ in this.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def lowered(op: Builder, *args: Any, **kwargs: Any) -> ir.Value:
            dtype = op.result.dtype
            wide = kernel_dtype(dtype)
            if wide != dtype and dtype.is_floating_point:
                op.computing_in(wide)
            enter = functools.partial(_entered, op, dtype=dtype, wide=wide, exact=exact_numbers and dtype in HALF)
            return op.cast(function(op, *map(enter, args), **kwargs), dtype)

        return lowered

    return decorate


def _entered(op: Builder, x: Any, dtype: torch.dtype, wide: torch.dtype, exact: bool) -> Any:
    if x is None:
        return None
    if isinstance(x, ir.Value):
        return op.cast(op.cast(x, dtype), wide)
    return constant(op, x if exact else _cast(x, dtype), wide)


def compute_dtype(op: Builder, operands: Iterable[Operand]) -> torch.dtype:
    """The dtype in which torch computes: float32 where a half-precision result meets a number that half cannot hold."""
    dtype = op.result.dtype
    numbers = [x for x in operands if not isinstance(x, ir.Value) or is_symbolic_number(x)]
    is_held = all(not isinstance(number, ir.Value) and is_exact(number, dtype) for number in numbers)
    return dtype if is_held else opmath(dtype)


def scaled(op: Builder, x: ir.Value, factor: Operand) -> ir.Value:
    """``x`` times a number, in the dtype of ``x``."""
    return x if not isinstance(factor, ir.Value) and factor == 1 else op.Mul(x, *promoted(op, (factor,), dtype_of(x)))


def arithmetic(op: Builder, operator: str, *operands: Operand) -> ir.Value:
    """One ONNX operator on promoted operands, its result in torch's dtype."""
    dtype = compute_dtype(op, operands)
    return op.cast(getattr(op, operator)(*promoted(op, operands, dtype)), op.result.dtype)


def chosen(op: Builder, condition: ir.Value, x: Operand, y: Operand) -> ir.Value:
    """Where, in torch's dtype; booleans are chosen as bytes, for which ONNX Runtime has a kernel."""
    dtype = op.result.dtype
    x, y = promoted(op, (x, y), dtype)
    if dtype in (torch.bool, torch.int16):
        x, y = promoted(op, (x, y), torch.uint8 if dtype == torch.bool else torch.int64)
    return op.cast(op.Where(condition, x, y), dtype)


def refusing_negative(op: Builder, index: ir.Value) -> ir.Value:
    """An index for ops that torch refuses a negative one: made far too large, for ONNX would count it from the end."""
    dtype = dtype_of(index)
    largest = op.const(torch.iinfo(dtype).max, dtype)
    if op.on_cuda and dtype.is_signed:  # there is no kernel for BitwiseAnd there: the index would go by way of the host
        return op.Where(op.Less(index, 0), largest, index)
    return op.BitwiseAnd(index, largest)


def flags_dtype(op: Builder) -> torch.dtype:
    """In what flags are reduced: in bytes, for which ONNX Runtime has no kernel on CUDA."""
    return torch.int32 if op.on_cuda else torch.uint8


def only(op: Builder, value: ir.Value, dtype: torch.dtype) -> ir.Value:
    """The only element, with no dimension."""
    return op.cast(op.Reshape(value, op.const([])), dtype)


def same_shape(x: Iterable[int | torch.SymInt], y: Iterable[int | torch.SymInt]) -> bool:
    """Whether two shapes that torch traced are the same; symbolic sizes are not asked, which would add a guard."""
    return list(map(str, x)) == list(map(str, y))
