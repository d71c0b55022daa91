"""Softmax and its derivative."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder, shape_of
from dort_compare.lowering.precision import in_float32
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten


@lowering(aten._softmax.default)
@in_float32
def softmax(op: Builder, x: ir.Value, dim: int, half_to_float: bool) -> ir.Value:
    """_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"""
    return op.Softmax(x, axis=dim) if shape_of(x) else op.Div(x, x)


@lowering(aten._softmax_backward_data.default)
@in_float32
def softmax_backward(op: Builder, grad: ir.Value, y: ir.Value, dim: int, input_dtype: torch.dtype) -> ir.Value:
    """_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor

    y (grad - sum(grad y)), the sum along ``dim``.
    """
    product = op.Mul(grad, y)
    total = op.ReduceSum(product, [dim], keepdims=1) if shape_of(y) else product
    return op.Mul(op.Sub(grad, total), y)
