"""Batch normalization, the running statistics that it keeps, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.normalization import (
    Results,
    affine,
    by_channel,
    moments,
    reciprocal_deviation,
    zeros,
)
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import product
from dort_compare.lowering.sums import add_up
from dort_compare.lowering.values import Dim, is_empty, shape_of

aten = torch.ops.aten
Maybe = ir.Value | None


@lowering(aten._native_batch_norm_legit_functional.default)
@in_float32
def batch_norm_functional(
    op: Builder,
    x: ir.Value,
    weight: Maybe,
    bias: Maybe,
    running_mean: ir.Value,
    running_var: ir.Value,
    training: bool,
    momentum: float,
    eps: float,
) -> Results:
    """_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, ...)
    -> (Tensor, Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)
    """
    if not training:
        normal = _by_running_statistics(op, x, weight, bias, running_mean, running_var, eps)
        return *normal, running_mean, running_var
    y, mean, rstd, variance = _by_batch_statistics(op, x, weight, bias, eps)
    return y, mean, rstd, *_updated(op, x, mean, variance, running_mean, running_var, momentum)


@lowering(aten._batch_norm_with_update_functional.default)
@in_float32
def batch_norm_with_update(
    op: Builder,
    x: ir.Value,
    weight: Maybe,
    bias: Maybe,
    running_mean: ir.Value,
    running_var: ir.Value,
    momentum: float,
    eps: float,
) -> Results:
    """_batch_norm_with_update_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, ...)
    -> (Tensor, Tensor, Tensor, Tensor reserve, Tensor running_mean_out, Tensor running_var_out)

    The reserve is cuDNN's; elsewhere it is empty.
    """
    y, mean, rstd, variance = _by_batch_statistics(op, x, weight, bias, eps)
    updated = _updated(op, x, mean, variance, running_mean, running_var, momentum)
    return y, mean, rstd, _empty(op, 3), *updated


@lowering(aten._native_batch_norm_legit.no_stats)
@in_float32
def batch_norm_no_stats(
    op: Builder, x: ir.Value, weight: Maybe, bias: Maybe, training: bool, momentum: float, eps: float
) -> Results:
    """_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training, ...) -> 3 Tensors"""
    return _by_batch_statistics(op, x, weight, bias, eps)[:3]


@lowering(aten._native_batch_norm_legit_no_training.default)
@in_float32
def batch_norm_no_training(
    op: Builder,
    x: ir.Value,
    weight: Maybe,
    bias: Maybe,
    running_mean: ir.Value,
    running_var: ir.Value,
    momentum: float,
    eps: float,
) -> Results:
    """_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, ...)
    -> 3 Tensors
    """
    return _by_running_statistics(op, x, weight, bias, running_mean, running_var, eps)


@lowering(aten._batch_norm_no_update.default)
@in_float32
def batch_norm_no_update(
    op: Builder,
    x: ir.Value,
    weight: Maybe,
    bias: Maybe,
    running_mean: ir.Value,
    running_var: ir.Value,
    momentum: float,
    eps: float,
) -> Results:
    """_batch_norm_no_update(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, ...) -> 4 Tensors"""
    return *_by_running_statistics(op, x, weight, bias, running_mean, running_var, eps), _empty(op, 3)


def _empty(op: Builder, position: int) -> ir.Value:
    fake = op.result[position]
    if tuple(fake.shape) != (0,):
        raise op.unsupported("memory reserved for cuDNN")
    return op.Identity(op.const([], fake.dtype))


def _by_batch_statistics(
    op: Builder, x: ir.Value, weight: Maybe, bias: Maybe, eps: float
) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """The result, the mean, 1 / sqrt(variance + eps) and the variance of each channel."""
    if is_empty(x):
        raise op.unsupported("a normalization of no elements")
    axes = _all_but_channels(x)
    mean, centred, variance = moments(op, x, axes)
    rstd = reciprocal_deviation(op, variance, eps)
    factor = affine(op, rstd, by_channel(op, weight, x), None)
    y = affine(op, centred, factor, by_channel(op, bias, x))
    return y, op.Squeeze(mean, axes), op.Squeeze(rstd, axes), op.Squeeze(variance, axes)


def _by_running_statistics(
    op: Builder, x: ir.Value, weight: Maybe, bias: Maybe, mean: ir.Value, variance: ir.Value, eps: float
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The result and, only where torch saves them, mean and 1 / sqrt(variance + eps).

    ONNX's operator holds eps in float32, and so is no use for float64.
    """
    dtype = opmath(op.result_dtype)
    if dtype == torch.float32:
        channels = op.dims([op.size(x, 1)])
        factor = op.Expand(op.const(1, dtype), channels) if weight is None else weight
        offset = op.Expand(op.const(0, dtype), channels) if bias is None else bias
        y = op.BatchNormalization(x, factor, offset, mean, variance, epsilon=eps)
    else:
        rstd = reciprocal_deviation(op, variance, eps)
        normal = op.Mul(op.Sub(x, by_channel(op, mean, x)), by_channel(op, rstd, x))
        y = affine(op, normal, by_channel(op, weight, x), by_channel(op, bias, x))
    if tuple(op.result[1].shape) == (0,):
        return y, _empty(op, 1), _empty(op, 2)
    return y, mean, reciprocal_deviation(op, variance, eps)


def _updated(
    op: Builder,
    x: ir.Value,
    mean: ir.Value,
    variance: ir.Value,
    running_mean: ir.Value,
    running_var: ir.Value,
    momentum: float,
) -> tuple[ir.Value, ir.Value]:
    """The running statistics, moved towards those of the batch; the variance counts one element less."""
    dtype = opmath(op.result_dtype)
    unbiased = op.Mul(variance, _correction(op, [op.size(x, d) for d in _all_but_channels(x)], dtype))
    moved = [
        op.Add(op.Mul(op.const(momentum, dtype), now), op.Mul(op.const(1 - momentum, dtype), before))
        for now, before in ((mean, running_mean), (unbiased, running_var))
    ]
    return moved[0], moved[1]


def _correction(op: Builder, sizes: Sequence[Dim], dtype: torch.dtype) -> ir.Value:
    """n / (n - 1) for n elements."""
    count = product(op, sizes)
    if isinstance(count, int):
        return op.const(count / (count - 1) if count > 1 else math.nan, dtype)
    total = op.cast(count, dtype)
    return op.Div(total, op.Sub(total, op.const(1, dtype)))


def _all_but_channels(x: ir.Value) -> list[int]:
    return [0, *range(2, len(shape_of(x)))]


@lowering(aten.native_batch_norm_backward.default)
@in_float32
def native_batch_norm_backward(
    op: Builder,
    grad: ir.Value,
    x: ir.Value,
    weight: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    save_mean: Maybe,
    save_invstd: Maybe,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Results:
    """native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, Tensor? running_mean, ...) -> 3 Tensors

    Of the n elements of a channel: by_bias is the sum of grad, by_weight that of grad * normal, and by_input
    weight * rstd * (grad - by_bias / n - normal * by_weight / n), whose weights are taken together by channel. Without
    training the statistics are constants, and no gradient flows through them.
    """
    if is_empty(x):
        return zeros(op)
    axes = _all_but_channels(x)
    if train:
        mean, rstd = by_channel(op, save_mean, x), by_channel(op, save_invstd, x)
    else:
        assert running_var is not None
        mean = by_channel(op, running_mean, x)
        rstd = by_channel(op, reciprocal_deviation(op, running_var, eps), x)
    assert rstd is not None
    by_input = by_weight = by_bias = None
    if output_mask[2] or (output_mask[0] and train):
        by_bias = add_up(op, "ReduceSum", grad, axes, keepdims=True)
    if output_mask[1] or (output_mask[0] and train):
        centred = op.Sub(x, mean)
        by_weight = op.Mul(add_up(op, "ReduceSum", op.Mul(grad, centred), axes, keepdims=True), rstd)
    if output_mask[0]:
        factor = affine(op, rstd, by_channel(op, weight, x), None)
        if train:
            count = op.const(product(op, [op.size(x, d) for d in axes]), opmath(op.result_dtype))
            along = op.Mul(centred, op.Div(op.Mul(by_weight, rstd), count))
            grad = op.Sub(op.Sub(grad, op.Div(by_bias, count)), along)
        by_input = op.Mul(grad, factor)
    wanted = zip((by_weight, by_bias), output_mask[1:], strict=True)
    return by_input, *(op.Squeeze(value, axes) if value and is_wanted else None for value, is_wanted in wanted)


@lowering(aten.batch_norm_backward.default)
def batch_norm_backward(
    op: Builder,
    grad: ir.Value,
    x: ir.Value,
    weight: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    save_mean: Maybe,
    save_var: Maybe,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: ir.Value,
) -> Results:
    """batch_norm_backward(Tensor grad_out, Tensor input, Tensor weight, ..., Tensor reserve) -> 3 Tensors"""
    saved = (running_mean, running_var, save_mean, save_var)
    return native_batch_norm_backward(op, grad, x, weight, *saved, update, eps, output_mask)
