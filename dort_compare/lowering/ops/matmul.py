"""Products of matrices."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import Number, scaled
from dort_compare.lowering.precision import in_float32, in_int64
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of, is_empty, shape_of

aten = torch.ops.aten


@lowering(aten.mm.default, aten.bmm.default)
@in_int64
def mm(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """mm(Tensor self, Tensor mat2) -> Tensor

    Batches of sums of no terms are left unset by ONNX Runtime where it has fused a transpose into the product (1.31).
    """
    terms = op.size(x, -1)
    if isinstance(terms, int) and terms == 0:
        sizes = [*(op.size(x, dim) for dim in range(op.result.ndim - 1)), op.size(y, -1)]
        return op.Expand(op.const(0, dtype_of(x)), op.dims(sizes))
    return op.MatMul(x, y)


@lowering(aten._int_mm.default)
def int_mm(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """_int_mm(Tensor self, Tensor mat2) -> Tensor

    Of bytes, those of ``self`` with or without a sign, in int32. Products with signed ones MatMulInteger adds up in
    pairs in 16 bits, where they do not fit, on processors without VNNI; those of unsigned ones in 32 bits on all.
    """
    terms = op.size(x, -1)
    if isinstance(terms, int) and terms == 0:  # which MatMulInteger leaves unset
        return op.Expand(op.const(0, torch.int32), op.dims([op.size(x, 0), op.size(y, 1)]))
    if op.on_cuda:  # where there is no kernel for unsigned ones
        return op.cast(op.MatMul(op.cast(x, torch.float64), op.cast(y, torch.float64)), torch.int32)
    (left, zero_of_x), (right, zero_of_y) = _unsigned(op, x), _unsigned(op, y)
    return op.MatMulInteger(left, right, zero_of_x, zero_of_y)


def _unsigned(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Bytes without a sign, and what stands for 0 among them: 128 where they had one, which is their highest bit."""
    if dtype_of(x) == torch.uint8:
        return x, op.const(0, torch.uint8)
    zero = op.const(128, torch.uint8)
    return op.BitwiseXor(op.cast(x, torch.uint8), zero), zero


@lowering(aten.addmm.default)
@in_float32
@in_int64
def addmm(op: Builder, bias: ir.Value, x: ir.Value, y: ir.Value, beta: Number = 1, alpha: Number = 1) -> ir.Value:
    """addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    return _added(op, op.MatMul(x, y), bias, beta, alpha)


def _added(op: Builder, product: ir.Value, bias: ir.Value, beta: Number, alpha: Number) -> ir.Value:
    """beta bias + alpha product; a bias that beta = 0 leaves out may hold NaN, as in torch."""
    product = scaled(op, product, alpha)
    return product if beta == 0 else op.Add(product, scaled(op, bias, beta))


@lowering(aten.addbmm.default)
@in_float32
@in_int64
def addbmm(op: Builder, bias: ir.Value, x: ir.Value, y: ir.Value, beta: Number = 1, alpha: Number = 1) -> ir.Value:
    """addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor

    The sum over the batch of x y is one product of matrices, [N, B K] and [B K, M]; of no products, or of products of
    no terms, it is zero.
    """
    if not all(isinstance(n, int) for n in (*shape_of(x), *shape_of(y))):
        raise op.unsupported("a sum of products of symbolic size")
    rows, columns = op.result.shape
    if is_empty(x, y):
        start = op.const(0, dtype_of(x)) if beta == 0 else scaled(op, bias, beta)
        return op.Expand(start, [rows, columns])
    left = op.Reshape(op.Transpose(x, perm=[1, 0, 2]), [rows, -1])
    return _added(op, op.MatMul(left, op.Reshape(y, [-1, columns])), bias, beta, alpha)
