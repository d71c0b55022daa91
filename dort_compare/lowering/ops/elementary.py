"""Exponentials, trigonometric and hyperbolic functions, square roots.

The functions without ``@lowering`` take any ONNX value in float32 or float64, for other families to build upon.
ONNX Runtime's CPU provider computes a good part of the operators in float32 alone.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import in_kernel_dtype
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of

aten = torch.ops.aten
prims = torch.ops.prims
Unary = Callable[[Builder, ir.Value], ir.Value]


def elementary(*targets: torch._ops.OpOverload) -> Callable[[Unary], Unary]:
    """Registers a function of one floating value; integers are computed in the dtype that torch promotes them to."""

    def register(function: Unary) -> Unary:
        lowering(*targets)(in_kernel_dtype()(function))
        return function

    return register


def _operator(name: str) -> Unary:
    def function(op: Builder, x: ir.Value) -> ir.Value:
        return getattr(op, name)(x)

    return function


for _targets, _name in {
    (aten.cos.default, prims.cos.default): "Cos",
    (aten.exp.default, prims.exp.default): "Exp",
    (aten.log.default, prims.log.default): "Log",
    (aten.reciprocal.default, prims.reciprocal.default): "Reciprocal",
    (aten.sin.default, prims.sin.default): "Sin",
    (aten.sqrt.default, prims.sqrt.default): "Sqrt",
    (aten.tanh.default, prims.tanh.default): "Tanh",
}.items():
    elementary(*_targets)(_operator(_name))


@elementary(aten.rsqrt.default, prims.rsqrt.default)
def rsqrt(op: Builder, x: ir.Value) -> ir.Value:
    """rsqrt(Tensor self) -> Tensor"""
    return op.Reciprocal(op.Sqrt(x))


@elementary(aten.sigmoid.default)
def sigmoid(op: Builder, x: ir.Value) -> ir.Value:
    """sigmoid(Tensor self) -> Tensor

    1 / (1 + exp(-x)), right to its own last places; Sigmoid is to those of 1, and 0 below -18.
    """
    return op.Reciprocal(op.Add(op.Exp(op.Neg(x)), 1))


@elementary(aten.exp2.default, prims.exp2.default)
def exp2(op: Builder, x: ir.Value) -> ir.Value:
    """exp2(Tensor self) -> Tensor"""
    return op.Pow(op.const(2, dtype_of(x)), x)


@elementary(aten.expm1.default, prims.expm1.default)
def expm1(op: Builder, x: ir.Value) -> ir.Value:
    """expm1(Tensor self) -> Tensor

    tanh(x / 2) (exp(x) + 1), accurate near zero.
    """
    return op.Mul(op.Tanh(op.Mul(x, 0.5)), op.Add(op.Exp(x), 1))


@elementary(aten.cosh.default, prims.cosh.default)
def cosh(op: Builder, x: ir.Value) -> ir.Value:
    """cosh(Tensor self) -> Tensor

    In float64 (h / 2) h + 1 / (2 h h) with h = exp(|x| / 2), which overflows where cosh does.
    """
    if dtype_of(x) == torch.float32:
        return op.Cosh(x)
    root = op.Exp(op.Mul(op.Abs(x), 0.5))
    return op.Add(op.Mul(op.Mul(root, 0.5), root), op.Div(op.Div(0.5, root), root))


@elementary(aten.sinh.default, prims.sinh.default)
def sinh(op: Builder, x: ir.Value) -> ir.Value:
    """sinh(Tensor self) -> Tensor"""
    return op.Sinh(x) if dtype_of(x) == torch.float32 else op.Mul(op.Tanh(x), cosh(op, x))


@elementary(aten.tan.default, prims.tan.default)
def tan(op: Builder, x: ir.Value) -> ir.Value:
    """tan(Tensor self) -> Tensor"""
    if dtype_of(x) == torch.float64:
        raise op.unsupported("ONNX Runtime's CPU provider has no Tan in float64, and its Cos is poor at the poles")
    return op.Tan(x)
