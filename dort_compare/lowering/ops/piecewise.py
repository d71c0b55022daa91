"""Activations of straight pieces and their derivatives.

At NaN torch's own derivatives depend on whether an element falls into a vector or into the rest behind the last one;
those here are the vector's.
"""

from __future__ import annotations

import onnx_ir as ir
import torch
from torch.torch_version import TorchVersion

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.comparison import between, clamp, larger
from dort_compare.lowering.ops.operands import Number, in_kernel_dtype, scaled
from dort_compare.lowering.precision import in_float32, in_int64
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of, fake_of

aten = torch.ops.aten
_SIXTH = torch.tensor(1 / 6, dtype=torch.float32).item()


@lowering(aten.relu.default)
@in_int64
def relu(op: Builder, x: ir.Value) -> ir.Value:
    """relu(Tensor self) -> Tensor"""
    return op.Relu(x) if fake_of(x).dtype.is_floating_point else larger(op, x, 0)


@lowering(aten.threshold.default)
def threshold(op: Builder, x: ir.Value, threshold: Number, value: Number) -> ir.Value:
    """threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor

    In half precision torch rounds the threshold first; its kernel for CPUs does not.
    """
    return in_kernel_dtype(exact_numbers=not op.on_cuda)(_threshold)(op, x, threshold, value)


def _threshold(op: Builder, x: ir.Value, threshold: ir.Value, value: ir.Value) -> ir.Value:
    return op.Where(op.LessOrEqual(x, threshold), value, x)


@lowering(aten.threshold_backward.default)
def threshold_backward(op: Builder, grad: ir.Value, x: ir.Value, threshold: Number) -> ir.Value:
    """threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor

    The threshold is rounded as that of ``threshold``.
    """
    return in_kernel_dtype(exact_numbers=not op.on_cuda)(_threshold_backward)(op, grad, x, threshold)


def _threshold_backward(op: Builder, grad: ir.Value, x: ir.Value, threshold: ir.Value) -> ir.Value:
    return op.Where(op.LessOrEqual(x, threshold), 0, grad)


@lowering(aten.leaky_relu.default)
@in_float32
def leaky_relu(op: Builder, x: ir.Value, negative_slope: Number = 0.01) -> ir.Value:
    """leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor"""
    return _leaky(op, x, negative_slope)


def _leaky(op: Builder, x: ir.Value, slope: Number) -> ir.Value:
    """ONNX Runtime's CPU provider has LeakyRelu in float32 alone, and ONNX no symbolic slope."""
    if dtype_of(x) == torch.float32 and isinstance(slope, (int, float)):
        return op.LeakyRelu(x, alpha=float(slope))
    return op.Where(op.Greater(x, 0), x, scaled(op, x, slope))


@lowering(aten.leaky_relu_backward.default)
@in_float32
def leaky_relu_backward(
    op: Builder, grad: ir.Value, x: ir.Value, negative_slope: Number, self_is_result: bool
) -> ir.Value:
    """leaky_relu_backward(Tensor grad_output, Tensor self, Scalar negative_slope, bool self_is_result) -> Tensor"""
    return op.Where(op.Greater(x, 0), grad, scaled(op, grad, negative_slope))


@lowering(aten.rrelu_with_noise.default)
@in_float32
def rrelu_with_noise(
    op: Builder,
    x: ir.Value,
    noise: ir.Value,
    lower: Number = 1 / 8,
    upper: Number = 1 / 3,
    training: bool = False,
    generator: None = None,
) -> ir.Value:
    """rrelu_with_noise(Tensor self, Tensor(b!) noise, Scalar lower, Scalar upper, bool training, ...) -> Tensor"""
    return _randomized_leaky(op, x, lower, upper, training)


@lowering(aten.rrelu_with_noise_functional.default)
@in_float32
def rrelu_with_noise_functional(
    op: Builder,
    x: ir.Value,
    noise: ir.Value,
    lower: Number = 1 / 8,
    upper: Number = 1 / 3,
    training: bool = False,
    generator: None = None,
) -> tuple[ir.Value, ir.Value]:
    """rrelu_with_noise_functional(Tensor self, Tensor noise, Scalar lower, Scalar upper, bool training=False, ...) ->
    (Tensor, Tensor noise_out)"""
    return _randomized_leaky(op, x, lower, upper, training), noise


def _randomized_leaky(op: Builder, x: ir.Value, lower: Number, upper: Number, training: bool) -> ir.Value:
    """Outside training leaky_relu with the slope in the middle; in training torch draws and writes ``noise``."""
    if training:
        raise op.unsupported("in training it draws random numbers")
    return _leaky(op, x, (lower + upper) / 2)


@lowering(aten._prelu_kernel.default)
@in_kernel_dtype()
def prelu(op: Builder, x: ir.Value, weight: ir.Value) -> ir.Value:
    """_prelu_kernel(Tensor self, Tensor weight) -> Tensor"""
    return op.Where(op.Greater(x, 0), x, op.Mul(weight, x))


@lowering(aten._prelu_kernel_backward.default)
@in_float32
def prelu_backward(op: Builder, grad: ir.Value, x: ir.Value, weight: ir.Value) -> tuple[ir.Value, ir.Value]:
    """_prelu_kernel_backward(Tensor grad_output, Tensor self, Tensor weight) -> (Tensor, Tensor)"""
    positive = op.Greater(x, 0)
    return op.Where(positive, grad, op.Mul(weight, grad)), op.Where(positive, 0, op.Mul(x, grad))


@lowering(aten.hardtanh.default)
def hardtanh(op: Builder, x: ir.Value, min_val: Number = -1, max_val: Number = 1) -> ir.Value:
    """hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor"""
    return clamp(op, x, min_val, max_val)


@lowering(aten.hardtanh_backward.default)
@in_kernel_dtype(exact_numbers=True)
def hardtanh_backward(op: Builder, grad: ir.Value, x: ir.Value, min_val: ir.Value, max_val: ir.Value) -> ir.Value:
    """hardtanh_backward(Tensor grad_output, Tensor self, Scalar min_val, Scalar max_val) -> Tensor

    Unlike ``hardtanh``, torch's kernels hold half precision against numbers that are not rounded to it.
    """
    return op.Where(op.And(op.Greater(x, min_val), op.Less(x, max_val)), grad, 0)


@lowering(aten.hardsigmoid.default)
@in_float32
def hardsigmoid(op: Builder, x: ir.Value) -> ir.Value:
    """hardsigmoid(Tensor self) -> Tensor

    x + 3 clamped to [0, 6], by 6.
    """
    return op.Div(_clamped_to_six(op, x), 6)


def _clamped_to_six(op: Builder, x: ir.Value) -> ir.Value:
    return between(op, op.Add(x, 3), op.const(0, dtype_of(x)), op.const(6, dtype_of(x)))


@lowering(aten.hardsigmoid_backward.default)
@in_float32
def hardsigmoid_backward(op: Builder, grad: ir.Value, x: ir.Value) -> ir.Value:
    """hardsigmoid_backward(Tensor grad_output, Tensor self) -> Tensor

    A sixth of the gradient between -3 and 3; torch has that number in float32, in float64 too.
    """
    return op.Where(op.Less(op.Abs(x), 3), op.Mul(grad, _SIXTH), 0)


@lowering(aten.hardswish.default)
@in_float32
def hardswish(op: Builder, x: ir.Value) -> ir.Value:
    """hardswish(Tensor self) -> Tensor

    x times hardsigmoid(x)
    """
    return op.Div(op.Mul(x, _clamped_to_six(op, x)), 6)


@lowering(aten.hardswish_backward.default)
@in_float32
def hardswish_backward(op: Builder, grad: ir.Value, x: ir.Value) -> ir.Value:
    """hardswish_backward(Tensor grad_output, Tensor self) -> Tensor

    0 up to -3, the gradient from 3 on, between them grad (x / 3 + 1/2).
    """
    slope = op.Mul(grad, op.Add(op.Div(x, 3), 0.5))
    return op.Where(op.LessOrEqual(x, -3), 0, op.Where(op.GreaterOrEqual(x, 3), grad, slope))


@lowering(aten.softshrink.default)
def softshrink(op: Builder, x: ir.Value, lambd: Number = 0.5) -> ir.Value:
    """softshrink(Tensor self, Scalar lambd=0.5) -> Tensor

    In half precision torch rounds lambd first; up to 2.13 its kernel for CPUs does not.
    """
    is_exact = op.result.device.type == "cpu" and TorchVersion(torch.__version__) < "2.14"
    return in_kernel_dtype(exact_numbers=is_exact)(_softshrink)(op, x, lambd)


def _softshrink(op: Builder, x: ir.Value, width: ir.Value) -> ir.Value:
    size = op.Abs(x)
    shrunk = op.Mul(op.Sign(x), op.Sub(size, width))
    return op.Where(op.LessOrEqual(size, width), 0, shrunk)


@lowering(aten.hardshrink.default)
@in_kernel_dtype()
def hardshrink(op: Builder, x: ir.Value, lambd: ir.Value | None = None) -> ir.Value:
    """hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor"""
    return op.Where(op.LessOrEqual(op.Abs(x), 0.5 if lambd is None else lambd), 0, x)


@lowering(aten.softshrink_backward.default, aten.hardshrink_backward.default)
@in_kernel_dtype()
def shrink_backward(op: Builder, grad: ir.Value, x: ir.Value, lambd: ir.Value) -> ir.Value:
    """softshrink_backward(Tensor grad_output, Tensor self, Scalar lambd) -> Tensor"""
    return op.Where(op.Greater(op.Abs(x), lambd), grad, 0)
