"""Values that are read to be quantized and for nothing else: an optimizer may quantize them before they are moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import onnx
import torch

from dort_compare.captures import readers_of
from dort_compare.trace.parts import Parts
from dort_compare.trace.passages import RESHAPES
from dort_compare.trace.schemas import plain_domain

_MOVES = RESHAPES | {"Identity", "MaxPool", "Slice", "Transpose"}
"""Operators that give elements of their first operand, and no others: it is the same to quantize before or after."""
_RANGES: Mapping[int, tuple[int, int]] = {
    onnx.TensorProto.UINT8: (0, 2**8 - 1),
    onnx.TensorProto.INT8: (-(2**7), 2**7 - 1),
    onnx.TensorProto.UINT16: (0, 2**16 - 1),
    onnx.TensorProto.INT16: (-(2**15), 2**15 - 1),
}


class Grid(NamedTuple):
    """The numbers that a quantization can tell apart: ``scale`` times the integers from ``low`` to ``high``."""

    scale: float
    low: int
    high: int

    def nearest(self, value: torch.Tensor) -> torch.Tensor:
        """What is left of a value that is quantized and dequantized."""
        return ((value.float() / self.scale).round().clamp(self.low, self.high) * self.scale).to(value.dtype)


class Quantized:
    """What the quantizations of a model leave of its values."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._outputs = {value.name for value in parts.model.graph.output}
        self._readers = readers_of(parts.nodes)

    def left(self, name: str, value: torch.Tensor) -> list[torch.Tensor]:
        """What each quantization leaves of a value that nothing but quantizations read; none where something does."""
        grids = list(self._grids(name)) if value.is_floating_point() else []
        return [] if None in grids else [grid.nearest(value) for grid in grids if grid]

    def _grids(self, name: str) -> Iterator[Grid | None]:
        """Of each reader of a value, itself or moved; None for one that does not quantize the whole by one scale."""
        if name in self._outputs:
            yield None
        for node in self._readers.get(name, ()):
            is_first = not plain_domain(node.domain) and node.input[0] == name
            if is_first and node.op_type in _MOVES and len(node.output) == 1:
                yield from self._grids(node.output[0])
            else:
                yield self._grid(node) if is_first and node.op_type == "QuantizeLinear" else None

    def _grid(self, node: onnx.NodeProto) -> Grid | None:
        scale, zero = (self._parts.constants.get(name) for name in (*node.input[1:], "")[:2])
        if scale is None or zero is None or scale.dims or zero.dims or zero.data_type not in _RANGES:
            return None
        low, high = _RANGES[zero.data_type]
        zero_point = int(onnx.numpy_helper.to_array(zero))
        return Grid(float(onnx.numpy_helper.to_array(scale)), low - zero_point, high - zero_point)
