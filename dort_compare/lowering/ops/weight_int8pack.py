"""Products with a weight in bytes."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import in_float32
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of

aten = torch.ops.aten


@lowering(aten._weight_int8pack_mm.default)
@in_float32
def weight_int8pack_mm(op: Builder, x: ir.Value, weight: ir.Value, scales: ir.Value) -> ir.Value:
    """_weight_int8pack_mm(Tensor self, Tensor mat2, Tensor scales) -> Tensor

    A weight [N, K] in bytes, whose rows the scales [N] multiply: behind the product, where they are fewest.
    """
    rows = op.Transpose(op.cast(weight, dtype_of(x)), perm=[1, 0])
    return op.Mul(op.MatMul(x, rows), scales)
