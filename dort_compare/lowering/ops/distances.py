"""Distances between the rows of matrices.

The differences of all pairs are held at once: rows x rows x columns, where torch's kernels hold one pair at a time.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.extremes import extreme
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import is_empty, shape_of

aten = torch.ops.aten


def _number(op: Builder, value: float) -> ir.Value:
    return op.const(value, opmath(op.result.dtype))


def _norm(op: Builder, differences: ir.Value, p: float) -> ir.Value:
    """The p-norm along the last dimension. Torch's kernels for CUDA count NaN as any difference where p is 0, and pass
    over it where p is infinite."""
    size = op.Abs(differences)
    if p == 0:
        differs = op.cast(op.Not(op.Equal(size, _number(op, 0))), opmath(op.result.dtype))
        return op.ReduceSum(differs if op.on_cuda else op.Where(op.IsNaN(size), size, differs), [-1], keepdims=0)
    if p == 1:
        return op.ReduceSum(size, [-1], keepdims=0)
    if p == 2:
        return op.Sqrt(op.ReduceSum(op.Mul(size, size), [-1], keepdims=0))
    if p == math.inf:
        size = _without_nan(op, size) if op.on_cuda else size
        return extreme(op, "ReduceMax", size, -1, False, op.result.ndim + 1)
    return op.Pow(op.ReduceSum(op.Pow(size, _number(op, p)), [-1], keepdims=0), _number(op, 1 / p))


def _slope(op: Builder, differences: ir.Value, distance: ir.Value, grad: ir.Value, p: float) -> ir.Value:
    """grad times the derivative of the norm by the difference; torch takes it as 0 where the distance is 0."""
    if p == 1:
        return op.Mul(op.Sign(differences), grad)
    if p == math.inf:
        behind = op.Sub(op.Abs(differences), distance)
        slope = op.Where(op.Equal(behind, _number(op, 0)), op.Mul(op.Sign(differences), grad), _number(op, 0))
        return op.Where(op.IsNaN(behind), behind, slope)
    is_zero = op.Equal(distance, _number(op, 0))
    safe = op.Where(is_zero, _number(op, 1), distance)
    if p == 2:
        return op.Where(is_zero, _number(op, 0), op.Mul(grad, op.Div(differences, safe)))
    if p < 1:
        is_zero = op.Or(is_zero, op.Equal(differences, _number(op, 0)))
    power = op.Pow(op.Abs(differences), _number(op, p - 1))
    scale = op.Div(grad, op.Pow(safe, _number(op, p - 1)))
    return op.Where(is_zero, _number(op, 0), op.Mul(op.Mul(op.Sign(differences), power), scale))


@lowering(aten._cdist_forward.default)
@in_float32
def cdist(op: Builder, x1: ir.Value, x2: ir.Value, p: float, compute_mode: int | None) -> ir.Value:
    """_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor

    By differences in every mode, where torch may take a product of matrices. The largest of them passes over NaN.
    """
    if is_empty(x1, op.result):
        return op.Expand(_number(op, 0), op.dims(list(op.result.shape)))
    differences = _all_differences(op, x1, x2)
    return _norm(op, _without_nan(op, differences) if p == math.inf else differences, p)


def _without_nan(op: Builder, x: ir.Value) -> ir.Value:
    return op.Where(op.IsNaN(x), 0, x)


def _all_differences(op: Builder, x1: ir.Value, x2: ir.Value) -> ir.Value:
    return op.Sub(op.Unsqueeze(x1, [-2]), op.Unsqueeze(x2, [-3]))


@lowering(aten._cdist_backward.default)
@in_float32
def cdist_backward(op: Builder, grad: ir.Value, x1: ir.Value, x2: ir.Value, p: float, distance: ir.Value) -> ir.Value:
    """_cdist_backward(Tensor grad, Tensor x1, Tensor x2, float p, Tensor cdist) -> Tensor"""
    if p == 0 or is_empty(grad, x1):
        return op.Expand(_number(op, 0), op.dims(list(op.result.shape)))
    differences = _all_differences(op, x1, x2)
    slope = _slope(op, differences, op.Unsqueeze(distance, [-1]), op.Unsqueeze(grad, [-1]), p)
    return op.ReduceSum(slope, [-2], keepdims=0)


def _pairs(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The first and the second row of every pair i < j."""
    count = shape_of(x)[0]
    if not isinstance(count, int):
        raise op.unsupported("the distances between a symbolic number of rows")
    rows = torch.triu_indices(count, count, 1)
    return op.const(rows[0].tolist()), op.const(rows[1].tolist())


@lowering(aten._pdist_forward.default)
@in_float32
def pdist(op: Builder, x: ir.Value, p: float = 2) -> ir.Value:
    """_pdist_forward(Tensor self, float p=2) -> Tensor"""
    if is_empty(x) or is_empty(op.result):
        return op.Expand(_number(op, 0), op.dims(list(op.result.shape)))
    first, second = _pairs(op, x)
    return _norm(op, op.Sub(op.Gather(x, first, axis=0), op.Gather(x, second, axis=0)), p)


@lowering(aten._pdist_backward.default)
@in_float32
def pdist_backward(op: Builder, grad: ir.Value, x: ir.Value, p: float, distance: ir.Value) -> ir.Value:
    """_pdist_backward(Tensor grad, Tensor self, float p, Tensor pdist) -> Tensor"""
    zeros = op.Expand(_number(op, 0), op.Shape(x))
    if p == 0 or is_empty(grad, x):
        return zeros
    first, second = _pairs(op, x)
    differences = op.Sub(op.Gather(x, first, axis=0), op.Gather(x, second, axis=0))
    slope = _slope(op, differences, op.Unsqueeze(distance, [1]), op.Unsqueeze(grad, [1]), p)
    for rows, part in ((first, slope), (second, op.Neg(slope))):
        targets = op.Expand(op.Unsqueeze(rows, [1]), op.Shape(part))
        zeros = op.ScatterElements(zeros, targets, part, axis=0, reduction="add")
    return zeros
