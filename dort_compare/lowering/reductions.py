"""Along which axes ONNX reduces, and what it makes of no elements."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

OF_NOTHING = {
    **dict.fromkeys(("ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2"), "sum"),
    "ReduceProd": "prod",
    "ReduceMax": "amax",
    "ReduceMin": "amin",
}
"""By which reduction of torch's each ends, where it is of no elements."""


def with_axes_from_front(x: ir.Value, *axes: Any) -> tuple[Any, ...]:
    """The operands of a reduction of ``x``, its axes, if they are given as numbers, counted from the front."""
    if not axes or not isinstance(axes[0], list):
        return x, *axes
    return x, [axis_from_front(x, axis) for axis in axes[0]]


def axis_from_front(x: ir.Value, axis: int) -> int:
    """The same axis; one counted from the end is kept by ONNX Runtime (1.31) where the tensor is empty."""
    return axis if x.shape is None else axis % len(x.shape)


def empty_reduction(x: ir.Value, axes: Any = None) -> set[int]:
    """The dimensions along which a reduction goes, if one of them is known to be of size 0; none if not."""
    if isinstance(axes, ir.Value):
        axes = axes.const_value and axes.const_value.numpy().tolist()
        if axes is None:
            return set()
    if x.shape is None:
        return set()
    reduced = {axis % len(x.shape) for axis in axes or range(len(x.shape))}
    return reduced if any(x.shape[d] == 0 for d in reduced) else set()
