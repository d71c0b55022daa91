"""Casts that ONNX Runtime leaves out beside others, though they change numbers."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.values import is_floating

_NARROW = (torch.int32, torch.int16, torch.int8, torch.uint32, torch.uint16, torch.uint8)
_MAY_VANISH = frozenset([
    "Add", "Concat", "Div", "Expand", "Flatten", "Identity", "Mul", "Pad", "Reshape", "Slice", "Squeeze", "Sub", "Tile",
    "Transpose", "Unsqueeze",
])  # fmt: skip
"""What ONNX Runtime leaves out where it changes nothing, as an addition of 0."""


def would_lose_cast(value: ir.Value, dtype: torch.dtype) -> bool:
    """Whether a cast of ``value`` to ``dtype`` would replace one that cuts floats to int64: they wrap around in a
    narrower integer."""
    return dtype in _NARROW and _is_cut(value)


def _is_cut(value: ir.Value) -> bool:
    """Whether a value is a float cast to int64, as it is or behind what may vanish."""
    waiting, seen = [value], set[ir.Value]()
    while waiting:
        each = waiting.pop()
        node = each.producer()
        if node is None or each in seen or each.dtype != ir.DataType.INT64:
            continue
        seen.add(each)
        read = [operand for operand in node.inputs if operand is not None]
        if node.op_type == "Cast" and is_floating(read[0]):
            return True
        waiting += read if node.op_type in _MAY_VANISH else []
    return False
