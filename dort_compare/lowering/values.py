"""What is known of a value as its graph is lowered: what torch traced for it, and what ONNX holds."""

from __future__ import annotations

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import to_torch_dtype

from dort_compare.scalars import is_number

Dim = int | ir.Value
"""A size: a number, or a 0-d int64 value that holds a symbolic one."""


def shape_of(value: ir.Value) -> tuple[int | torch.SymInt, ...]:
    """The shape that torch traced for the value of an FX node."""
    return tuple(fake_of(value).shape)


def fake_of(value: ir.Value) -> torch.Tensor:
    """The fake tensor that torch traced for the value of an FX node; for a symbolic number that number."""
    return value.meta["val"]


def dtype_of(value: ir.Value) -> torch.dtype:
    """The dtype that any ONNX value has, which may be wider than what torch traced for its FX node."""
    assert value.dtype is not None
    return to_torch_dtype(value.dtype)


def is_floating(value: ir.Value) -> bool:
    """Whether any ONNX value holds floating numbers."""
    return dtype_of(value).is_floating_point


def is_empty(*values: ir.Value | torch.Tensor) -> bool:
    """Whether torch traced a size of 0 for a value of an FX node or a fake tensor.

    A symbolic size is not asked: that would add a guard, and a size that depends on data has no answer to give.
    """
    fakes = (value if isinstance(value, torch.Tensor) else fake_of(value) for value in values)
    return any(isinstance(size, int) and size == 0 for fake in fakes for size in fake.shape)


def is_symbolic_number(value: object) -> bool:
    """Whether ``value`` stands for a Python number that is symbolic in the FX graph, not for a tensor."""
    return isinstance(value, ir.Value) and is_number(value.meta.get("val"))
