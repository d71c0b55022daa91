"""Which values of an ONNX model leave an engine as torch tensors."""

from __future__ import annotations

import onnx

_TYPES = onnx.TensorProto
NOT_HELD = frozenset(
    number
    for name, number in _TYPES.DataType.items()
    if name == "STRING" or name.startswith(("FLOAT8", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2"))
)
"""Types of elements that ONNX Runtime does not hand to torch: strings, and numbers of few bits."""


def is_held(kind: onnx.TypeProto) -> bool:
    """Whether values of a type do: tensors of numbers, those of unknown dtype among them."""
    return kind.HasField("tensor_type") and kind.tensor_type.elem_type not in NOT_HELD


def is_held_name(kind: str) -> bool:
    """Whether values of a type do, as ONNX's operators write it: ``tensor(float)``."""
    return kind.startswith("tensor(") and _TYPES.DataType.Value(kind[7:-1].upper()) not in NOT_HELD
