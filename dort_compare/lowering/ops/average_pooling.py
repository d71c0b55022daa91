"""Means of windows and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.max_pooling import (
    adaptive_windows,
    batch,
    static_sizes,
    unbatch,
    window_attributes,
)
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.spatial import each
from dort_compare.lowering.values import is_empty, shape_of
from dort_compare.lowering.windows import window_sums

aten = torch.ops.aten


@dataclass(frozen=True)
class Pool:
    """The arguments of an average pool of ``rank`` dimensions."""

    rank: int
    kernel: list[int]
    strides: list[int]
    padding: list[int]
    ceil_mode: bool
    count_include_pad: bool
    divisor: int | None

    @classmethod
    def of(
        cls,
        rank: int,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Pool:
        kernel = each(kernel_size, rank)
        strides = each(stride, rank) if len(stride) else kernel
        return cls(rank, kernel, strides, each(padding, rank), ceil_mode, count_include_pad, divisor_override)

    def of_ones(self, sizes: Sequence[int], divisor: int | None) -> torch.Tensor:
        """torch's pool of an image of ones with another divisor, as (1, 1, sizes)."""
        function: Any = torch.nn.functional.avg_pool2d if self.rank == 2 else torch.nn.functional.avg_pool3d
        ones = torch.ones(1, 1, *sizes, dtype=torch.float64)
        return function(ones, self.kernel, self.strides, self.padding, self.ceil_mode, self.count_include_pad, divisor)

    def divisors(self, sizes: Sequence[int]) -> torch.Tensor:
        """How many elements torch counts for each output."""
        return (self.of_ones(sizes, 1) / self.of_ones(sizes, None)).round()


@lowering(aten.avg_pool2d.default)
@in_float32
def avg_pool2d(op: Builder, x: ir.Value, kernel_size: Sequence[int], *geometry: Any, **named: Any) -> ir.Value:
    """avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], ..., int? divisor_override=None) -> Tensor"""
    return _avg_pool(op, x, Pool.of(2, kernel_size, *geometry, **named))


@lowering(aten.avg_pool3d.default)
@in_float32
def avg_pool3d(op: Builder, x: ir.Value, kernel_size: Sequence[int], *geometry: Any, **named: Any) -> ir.Value:
    """avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], ..., int? divisor_override=None) -> Tensor"""
    return _avg_pool(op, x, Pool.of(3, kernel_size, *geometry, **named))


def _avg_pool(op: Builder, x: ir.Value, pool: Pool) -> ir.Value:
    """ONNX divides by the number of elements; what torch divides by instead is put right afterwards."""
    _refuse_integers(op)
    means = op.AveragePool(
        batch(op, x, pool.rank),
        kernel_shape=pool.kernel,
        count_include_pad=int(pool.count_include_pad),
        **window_attributes(op, x, pool.kernel, pool.strides, pool.padding, pool.ceil_mode),
    )
    if pool.divisor is not None:
        if pool.ceil_mode or not pool.count_include_pad:
            counts = pool.divisors(static_sizes(op, x, pool.rank)) / pool.divisor
        else:
            counts = torch.tensor(math.prod(pool.kernel) / pool.divisor)
        means = op.Mul(means, op.const(counts.tolist(), opmath(op.result.dtype)))
    return unbatch(op, means, pool.rank)


def _refuse_integers(op: Builder) -> None:
    if not op.result.dtype.is_floating_point:
        raise op.unsupported("integers, which ONNX does not average")


@lowering(aten.avg_pool2d_backward.default)
@in_float32
def avg_pool2d_backward(op: Builder, grad: ir.Value, x: ir.Value, *geometry: Any) -> ir.Value:
    """avg_pool2d_backward(Tensor grad_output, Tensor self, int[2] kernel_size, ...) -> Tensor"""
    return _avg_pool_backward(op, grad, x, Pool.of(2, *geometry))


@lowering(aten.avg_pool3d_backward.default)
@in_float32
def avg_pool3d_backward(op: Builder, grad: ir.Value, x: ir.Value, *geometry: Any) -> ir.Value:
    """avg_pool3d_backward(Tensor grad_output, Tensor self, int[3] kernel_size, ...) -> Tensor"""
    return _avg_pool_backward(op, grad, x, Pool.of(3, *geometry))


def _avg_pool_backward(op: Builder, grad: ir.Value, x: ir.Value, pool: Pool) -> ir.Value:
    """Each gradient, divided as its mean was, spreads over its window: a transposed convolution with ones.

    Every channel is an image of its own to it. It must not reach beyond the input where the last window did.
    """
    _refuse_integers(op)
    dtype = opmath(op.result.dtype)
    sizes, steps = static_sizes(op, x, pool.rank), static_sizes(op, grad, pool.rank)
    shape = op.dims([op.size(x, d) for d in range(len(shape_of(x)))])
    if is_empty(x):
        return op.Expand(op.const(0, dtype), shape)
    divisors = pool.divisors(sizes)[0] if pool.divisor is None else torch.tensor(pool.divisor)
    if (divisors == divisors.flatten()[0]).all():
        divisors = divisors.flatten()[0]
    images = op.Reshape(op.Div(grad, op.const(divisors.tolist(), dtype)), op.dims([-1, 1, *steps]))
    reach = [
        (n - 1) * stride + k - pad
        for n, stride, k, pad in zip(steps, pool.strides, pool.kernel, pool.padding, strict=True)
    ]
    spread = op.ConvTranspose(
        images,
        op.const(torch.ones(1, 1, *pool.kernel).tolist(), dtype),
        strides=pool.strides,
        pads=pool.padding + [max(end - size, 0) for end, size in zip(reach, sizes, strict=True)],
        output_padding=[max(size - end, 0) for end, size in zip(reach, sizes, strict=True)],
    )
    return op.Reshape(spread, shape)


@lowering(aten._adaptive_avg_pool2d.default)
@in_float32
def adaptive_avg_pool2d(op: Builder, x: ir.Value, output_size: Sequence[int]) -> ir.Value:
    """_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor"""
    return _adaptive_avg_pool(op, x, output_size)


@lowering(aten._adaptive_avg_pool3d.default)
@in_float32
def adaptive_avg_pool3d(op: Builder, x: ir.Value, output_size: Sequence[int]) -> ir.Value:
    """_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor"""
    return _adaptive_avg_pool(op, x, output_size)


def _adaptive_avg_pool(op: Builder, x: ir.Value, output_size: Sequence[int]) -> ir.Value:
    """An average pool where the windows are equal, else sums along one dimension after the other."""
    rank, dtype = len(output_size), opmath(op.result.dtype)
    sizes = static_sizes(op, x, rank)
    if is_empty(op.result):
        return op.Expand(op.const(0, dtype), op.dims(op.result.shape))
    if all(size % steps == 0 for size, steps in zip(sizes, output_size, strict=True)):
        return _avg_pool(op, x, Pool.of(rank, [size // steps for size, steps in zip(sizes, output_size, strict=True)]))
    leading = len(shape_of(x)) - rank
    for d, (size, steps) in enumerate(zip(sizes, output_size, strict=True), start=leading):
        x = window_sums(op, x, d, leading + rank, adaptive_windows(size, steps), dtype)
    return op.Div(x, op.const(_counts(sizes, output_size).tolist(), dtype))


def _counts(sizes: Sequence[int], output_size: Sequence[int]) -> torch.Tensor:
    """How many elements each output is the mean of."""
    counts = torch.ones(())
    for size, steps in zip(sizes, output_size, strict=True):
        counts = counts.unsqueeze(-1) * adaptive_windows(size, steps).present.sum(1)
    return counts


@lowering(aten._adaptive_avg_pool2d_backward.default)
@in_float32
def adaptive_avg_pool2d_backward(op: Builder, grad: ir.Value, x: ir.Value) -> ir.Value:
    """_adaptive_avg_pool2d_backward(Tensor grad_output, Tensor self) -> Tensor"""
    return _adaptive_avg_pool_backward(op, grad, x, 2)


@lowering(aten._adaptive_avg_pool3d_backward.default)
@in_float32
def adaptive_avg_pool3d_backward(op: Builder, grad: ir.Value, x: ir.Value) -> ir.Value:
    """_adaptive_avg_pool3d_backward(Tensor grad_output, Tensor self) -> Tensor"""
    return _adaptive_avg_pool_backward(op, grad, x, 3)


def _adaptive_avg_pool_backward(op: Builder, grad: ir.Value, x: ir.Value, rank: int) -> ir.Value:
    """Each element takes its part of every mean that it entered."""
    dtype = opmath(op.result.dtype)
    sizes, steps = static_sizes(op, x, rank), static_sizes(op, grad, rank)
    if is_empty(grad, x):
        return op.Expand(op.const(0, dtype), op.dims(op.result.shape))
    shares = op.Div(grad, op.const(_counts(sizes, steps).tolist(), dtype))
    leading = len(shape_of(x)) - rank
    for d, (size, n) in enumerate(zip(sizes, steps, strict=True), start=leading):
        shares = window_sums(op, shares, d, leading + rank, adaptive_windows(size, n).transposed(size), dtype)
    return shares
