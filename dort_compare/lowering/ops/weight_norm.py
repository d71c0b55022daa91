"""Weights as a direction times a length: the gradients of w = v (g / |v|)."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import in_float32
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import shape_of

aten = torch.ops.aten


@lowering(aten._weight_norm_interface_backward.default)
@in_float32
def weight_norm_backward(
    op: Builder, grad: ir.Value, v: ir.Value, g: ir.Value, norms: ir.Value, dim: int
) -> tuple[ir.Value, ir.Value]:
    """_weight_norm_interface_backward(Tensor grad_w, Tensor saved_v, Tensor saved_g, ...) -> 2 Tensors

    With s = sum(grad v) for each index of ``dim``: g / |v| (grad - v s / |v|^2), and s / |v|.
    """
    rank = len(shape_of(v))
    along = op.Div(op.ReduceSum(op.Mul(grad, v), [d for d in range(rank) if d != dim % rank], keepdims=1), norms)
    across = op.Sub(grad, op.Mul(v, op.Div(along, norms)))
    return op.Mul(op.Div(g, norms), across), along
