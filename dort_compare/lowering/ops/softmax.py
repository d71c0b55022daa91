"""Softmax and its derivative."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import in_float32
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import shape_of

aten = torch.ops.aten


@lowering(aten._softmax.default)
@in_float32
def softmax(op: Builder, x: ir.Value, dim: int, half_to_float: bool) -> ir.Value:
    """_softmax(Tensor self, int dim, bool half_to_float) -> Tensor

    In float64 step by step on CUDA: ONNX Runtime's kernel is exact to float32 only.
    """
    if not shape_of(x):
        return op.Exp(op.Sub(x, x))
    if x.dtype != ir.DataType.DOUBLE or not op.on_cuda:
        return op.Softmax(x, axis=dim)
    weights = op.Exp(op.Sub(x, op.ReduceMax(x, [dim], keepdims=1)))
    return op.Div(weights, op.ReduceSum(weights, [dim], keepdims=1))


@lowering(aten._softmax_backward_data.default)
@in_float32
def softmax_backward(op: Builder, grad: ir.Value, y: ir.Value, dim: int, input_dtype: torch.dtype) -> ir.Value:
    """_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor

    y (grad - sum(grad y)), the sum along ``dim``.
    """
    product = op.Mul(grad, y)
    total = op.ReduceSum(product, [dim], keepdims=1) if shape_of(y) else product
    return op.Mul(op.Sub(grad, total), y)


@lowering(aten._log_softmax.default)
@in_float32
def log_softmax(op: Builder, x: ir.Value, dim: int, half_to_float: bool) -> ir.Value:
    """_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor

    In float64 step by step: there ONNX Runtime's kernel answers -inf beside an infinity, where torch's says NaN.
    """
    if not shape_of(x):
        return op.Sub(x, x)
    if x.dtype != ir.DataType.DOUBLE:
        return op.LogSoftmax(x, axis=dim)
    shifted = op.Sub(x, op.ReduceMax(x, [dim], keepdims=1))
    return op.Sub(shifted, op.Log(op.ReduceSum(op.Exp(shifted), [dim], keepdims=1)))


@lowering(aten._log_softmax_backward_data.default)
@in_float32
def log_softmax_backward(op: Builder, grad: ir.Value, y: ir.Value, dim: int, input_dtype: torch.dtype) -> ir.Value:
    """_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor

    grad - exp(y) sum(grad), the sum along ``dim``.
    """
    total = op.ReduceSum(grad, [dim], keepdims=1) if shape_of(y) else grad
    return op.Sub(grad, op.Mul(op.Exp(y), total))
