"""Sizes as values: what FX does with symbolic integers becomes arithmetic on 0-d int64 tensors."""

from __future__ import annotations

import operator

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder, Dim
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten


@lowering(aten.sym_size.int)
def sym_size(op: Builder, x: ir.Value, dim: int) -> Dim:
    """sym_size.int(Tensor self, int dim) -> SymInt"""
    size = op.size(x, dim)
    return op.const(size) if isinstance(size, int) else size


@lowering(operator.add)
def add(op: Builder, a: Dim, b: Dim) -> Dim:
    """a + b"""
    return op.Add(*_values(op, a, b))


@lowering(operator.sub)
def sub(op: Builder, a: Dim, b: Dim) -> Dim:
    """a - b"""
    return op.Sub(*_values(op, a, b))


@lowering(operator.mul)
def mul(op: Builder, a: Dim, b: Dim) -> Dim:
    """a * b"""
    return op.Mul(*_values(op, a, b))


@lowering(operator.neg)
def neg(op: Builder, a: Dim) -> Dim:
    """-a"""
    return op.Neg(*_values(op, a))


@lowering(operator.floordiv)
def floordiv(op: Builder, a: Dim, b: Dim) -> Dim:
    """Python's floor division, where ONNX truncates: (a - a mod b) / b, with the modulus of b's sign."""
    dividend, divisor = _values(op, a, b)
    return op.Div(op.Sub(dividend, op.Mod(dividend, divisor)), divisor)


@lowering(operator.mod)
def mod(op: Builder, a: Dim, b: Dim) -> Dim:
    """a % b, of the sign of b, which is ONNX's rule for integers as well"""
    return op.Mod(*_values(op, a, b))


def _values(op: Builder, *sizes: Dim) -> list[ir.Value]:
    return [op.const(size) if isinstance(size, int) else size for size in sizes]
