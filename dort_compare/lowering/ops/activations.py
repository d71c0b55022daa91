"""Smooth activations and their derivatives."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.elementary import expm1, sigmoid
from dort_compare.lowering.ops.erf import erf
from dort_compare.lowering.ops.logarithm import log1p_of_fraction
from dort_compare.lowering.ops.operands import Number, Operand, same_shape, scaled
from dort_compare.lowering.precision import in_float32
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of, shape_of

aten = torch.ops.aten


@lowering(aten.sigmoid_backward.default)
@in_float32
def sigmoid_backward(op: Builder, grad: ir.Value, y: ir.Value) -> ir.Value:
    """sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor"""
    return op.Mul(grad, op.Mul(y, op.Sub(1, y)))


@lowering(aten.tanh_backward.default)
@in_float32
def tanh_backward(op: Builder, grad: ir.Value, y: ir.Value) -> ir.Value:
    """tanh_backward(Tensor grad_output, Tensor output) -> Tensor"""
    return op.Mul(grad, op.Sub(1, op.Mul(y, y)))


@lowering(aten.silu.default)
@in_float32
def silu(op: Builder, x: ir.Value) -> ir.Value:
    """silu(Tensor self) -> Tensor"""
    return op.Div(x, op.Add(op.Exp(op.Neg(x)), 1))


@lowering(aten.silu_backward.default)
@in_float32
def silu_backward(op: Builder, grad: ir.Value, x: ir.Value) -> ir.Value:
    """silu_backward(Tensor grad_output, Tensor self) -> Tensor

    d/dx of x s(x) is s (1 + x (1 - s)), with s the sigmoid of x.
    """
    s = sigmoid(op, x)
    return op.Mul(grad, op.Mul(s, op.Add(op.Mul(x, op.Sub(1, s)), 1)))


@lowering(aten.gelu.default)
@in_float32
def gelu(op: Builder, x: ir.Value, approximate: str = "none") -> ir.Value:
    """gelu(Tensor self, *, str approximate='none') -> Tensor

    x times the normal distribution function, or x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3).
    """
    if op.opset >= 20 and dtype_of(x) == torch.float32:
        return op.Gelu(x, approximate=approximate)
    if approximate == "none":
        return op.Mul(x, _normal_cdf(op, x))
    tanh = op.Tanh(op.Mul(_cubic(op, x), _GELU_BETA))
    return op.Mul(op.Mul(x, 0.5), op.Add(tanh, 1))


_GELU_BETA = math.sqrt(2 / math.pi)
_GELU_KAPPA = 0.044715


def _normal_cdf(op: Builder, x: ir.Value) -> ir.Value:
    return op.Mul(op.Add(erf(op, op.Mul(x, math.sqrt(0.5))), 1), 0.5)


def _cubic(op: Builder, x: ir.Value) -> ir.Value:
    return op.Add(x, op.Mul(op.Mul(op.Mul(x, x), x), _GELU_KAPPA))


@lowering(aten.gelu_backward.default)
@in_float32
def gelu_backward(op: Builder, grad: ir.Value, x: ir.Value, approximate: str = "none") -> ir.Value:
    """gelu_backward(Tensor grad_output, Tensor self, *, str approximate='none') -> Tensor

    d/dx of x F(x) is F(x) + x F'(x); in the approximation F = (1 + tanh(u)) / 2.
    """
    if approximate == "none":
        density = op.Mul(op.Exp(op.Mul(op.Mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
        return op.Mul(grad, op.Add(_normal_cdf(op, x), op.Mul(x, density)))
    tanh = op.Tanh(op.Mul(_cubic(op, x), _GELU_BETA))
    inner = op.Mul(op.Add(op.Mul(op.Mul(x, x), 3 * _GELU_KAPPA), 1), _GELU_BETA)
    right = op.Mul(op.Mul(op.Mul(x, 0.5), op.Sub(1, op.Mul(tanh, tanh))), inner)
    return op.Mul(grad, op.Add(op.Mul(op.Add(tanh, 1), 0.5), right))


@lowering(aten.elu.default)
@in_float32
def elu(op: Builder, x: ir.Value, alpha: Operand = 1, scale: Operand = 1, input_scale: Operand = 1) -> ir.Value:
    """elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor"""
    negative = scaled(op, expm1(op, scaled(op, x, input_scale)), _product(op, dtype_of(x), alpha, scale))
    return op.Where(op.Less(x, 0), negative, scaled(op, x, scale))


@lowering(aten.celu.default)
@in_float32
def celu(op: Builder, x: ir.Value, alpha: Operand = 1) -> ir.Value:
    """celu(Tensor self, Scalar alpha=1.0) -> Tensor"""
    return elu(op, x, alpha, 1, op.Div(1, op.cast(alpha, dtype_of(x))) if isinstance(alpha, ir.Value) else 1 / alpha)


@lowering(aten.elu_backward.default)
@in_float32
def elu_backward(
    op: Builder,
    grad: ir.Value,
    alpha: Operand,
    scale: Operand,
    input_scale: Operand,
    is_result: bool,
    x: ir.Value,
) -> ir.Value:
    """elu_backward(Tensor grad_output, Scalar alpha, Scalar scale, Scalar input_scale, bool is_result, ...)"""
    dtype = dtype_of(x)
    if is_result:
        slope = scaled(op, op.Add(x, _product(op, dtype, alpha, scale)), input_scale)
    else:
        slope = scaled(op, op.Exp(scaled(op, x, input_scale)), _product(op, dtype, alpha, scale, input_scale))
    return op.Where(op.Greater(x, 0), scaled(op, grad, scale), op.Mul(grad, slope))


def _product(op: Builder, dtype: torch.dtype, *factors: Operand) -> Operand:
    """The product of numbers; in that dtype where some are symbolic."""
    product: Operand = math.prod(factor for factor in factors if not isinstance(factor, ir.Value))
    for factor in factors:
        if isinstance(factor, ir.Value):
            product = scaled(op, op.cast(factor, dtype), product)
    return product


@lowering(aten.softplus.default)
@in_float32
def softplus(op: Builder, x: ir.Value, beta: Number = 1, threshold: Number = 20) -> ir.Value:
    """softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor

    log(1 + exp(beta x)) / beta; x itself where beta x exceeds the threshold, as the former is in float32 from 20 on.
    """
    steep = scaled(op, x, beta)
    soft = op.Add(op.Max(steep, 0), log1p_of_fraction(op, op.Exp(op.Neg(op.Abs(steep)))))
    is_far = isinstance(threshold, (int, float)) and threshold >= 20
    if beta == 1 and is_far and dtype_of(x) == torch.float32:
        return soft
    beyond = op.Greater(steep, op.const(threshold, dtype_of(x)))
    return op.Where(beyond, x, op.Div(soft, op.const(beta, dtype_of(x))))


@lowering(aten.softplus_backward.default)
@in_float32
def softplus_backward(op: Builder, grad: ir.Value, x: ir.Value, beta: Number, threshold: Number) -> ir.Value:
    """softplus_backward(Tensor grad_output, Tensor self, Scalar beta, Scalar threshold) -> Tensor"""
    steep = scaled(op, x, beta)
    z = op.Exp(steep)
    beyond = op.Greater(steep, op.const(threshold, dtype_of(x)))
    return op.Where(beyond, grad, op.Div(op.Mul(grad, z), op.Add(z, 1)))


@lowering(aten.mish.default)
@in_float32
def mish(op: Builder, x: ir.Value) -> ir.Value:
    """mish(Tensor self) -> Tensor

    x t with t = tanh(log(1 + exp(x)))
    """
    n = _mish_n(op, _bounded_exp(op, x))
    return op.Mul(x, op.Div(n, op.Add(n, 2)))


def _bounded_exp(op: Builder, x: ir.Value) -> ir.Value:
    """exp(x), no larger than exp(25), where t and the sigmoid of x are 1."""
    return op.Exp(op.Min(x, 25))


def _mish_n(op: Builder, e: ir.Value) -> ir.Value:
    """n = e (e + 2), in which tanh(log(1 + e)) is n / (n + 2)."""
    return op.Mul(e, op.Add(e, 2))


@lowering(aten.mish_backward.default)
@in_float32
def mish_backward(op: Builder, grad: ir.Value, x: ir.Value) -> ir.Value:
    """mish_backward(Tensor grad_output, Tensor self) -> Tensor

    grad (t + x s (1 - t^2)) with s = e / (1 + e) the sigmoid of x, where 1 - t^2 = 4 (1 + e)^2 / (n + 2)^2,
    0 from 25 on.
    """
    e = _bounded_exp(op, x)
    n = _mish_n(op, e)
    n_2 = op.Add(n, 2)
    slope = op.Div(op.Div(op.Mul(op.Mul(e, op.Add(e, 1)), 4), n_2), n_2)
    slope = op.Where(op.Less(x, 25), slope, 0)
    return op.Mul(grad, op.Add(op.Div(n, n_2), op.Mul(x, slope)))


@lowering(aten.log_sigmoid_forward.default)
@in_float32
def log_sigmoid_forward(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value | None]:
    """log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)

    min(x, 0) - log(1 + z) with z = exp(-|x|), which is the buffer, but on CUDA, where it is empty.
    """
    z = op.Exp(op.Neg(op.Abs(x)))
    output, buffer = op.result
    filled = same_shape(output.shape, buffer.shape)
    return op.Sub(op.Min(x, 0), log1p_of_fraction(op, z)), z if filled else op.const([], buffer.dtype)


@lowering(aten.log_sigmoid_backward.default)
@in_float32
def log_sigmoid_backward(op: Builder, grad: ir.Value, x: ir.Value, buffer: ir.Value) -> ir.Value:
    """log_sigmoid_backward(Tensor grad_output, Tensor self, Tensor buffer) -> Tensor

    grad times sigmoid(-x): z / (1 + z) from 0 on and 1 - z / (1 + z) below, with z = exp(-|x|).
    """
    z = op.Exp(op.Neg(op.Abs(x)))
    ratio = op.Div(z, op.Add(z, 1))
    return op.Mul(grad, op.Where(op.Less(x, 0), op.Sub(1, ratio), ratio))


def _halves(op: Builder, x: ir.Value, dim: int) -> tuple[ir.Value, ir.Value]:
    """Both halves along ``dim``; ONNX Runtime refuses to split no elements."""
    return (x, x) if shape_of(x)[dim] == 0 else op.Split(x, axis=dim, num_outputs=2, _outputs=2)


@lowering(aten.glu.default)
@in_float32
def glu(op: Builder, x: ir.Value, dim: int = -1) -> ir.Value:
    """glu(Tensor self, int dim=-1) -> Tensor

    The first half along ``dim`` times the sigmoid of the second.
    """
    value, gate = _halves(op, x, dim)
    return op.Div(value, op.Add(op.Exp(op.Neg(gate)), 1))


@lowering(aten.glu_backward.default)
@in_float32
def glu_backward(op: Builder, grad: ir.Value, x: ir.Value, dim: int) -> ir.Value:
    """glu_backward(Tensor grad_output, Tensor self, int dim) -> Tensor"""
    value, gate = _halves(op, x, dim)
    s = sigmoid(op, gate)
    of_value = op.Mul(grad, s)
    of_gate = op.Mul(op.Mul(of_value, op.Sub(1, s)), value)
    return op.Concat(of_value, of_gate, axis=dim)
