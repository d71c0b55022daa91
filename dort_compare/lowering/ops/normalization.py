"""Layer and group normalization, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import floordiv, product, times
from dort_compare.lowering.sums import add_up
from dort_compare.lowering.values import Dim, is_empty, shape_of

aten = torch.ops.aten
_LONG = 2**16
"""Terms of a row from which on they are added up in two stages."""
Results = tuple[ir.Value | None, ...]


def moments(op: Builder, x: ir.Value, axes: Sequence[int]) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Mean, what departs from it, and the mean of the squares of that, the reduced dimensions kept."""
    mean = add_up(op, "ReduceMean", x, axes, keepdims=True, precise=True)
    centred = op.Sub(x, mean)
    return mean, centred, add_up(op, "ReduceMean", op.Mul(centred, centred), axes, keepdims=True, precise=True)


def reciprocal_deviation(op: Builder, variance: ir.Value, eps: float) -> ir.Value:
    """1 / sqrt(variance + eps)"""
    return op.Reciprocal(op.Sqrt(op.Add(variance, op.const(eps, opmath(op.result_dtype)))))


def _saved(op: Builder, mean: ir.Value, rstd: ir.Value) -> ir.Value:
    """The mean for the gradient: torch updates it by its distance from each element, so that it is NaN beside an
    infinity."""
    return op.Where(op.IsNaN(rstd), rstd, mean) if op.wanted(1) else mean


def nothing(op: Builder) -> Results:
    """The results for an input without elements, where they have none either; a mean of nothing is refused."""
    if not all(is_empty(fake) for fake in op.result):
        raise op.unsupported("a normalization of no elements")
    return zeros(op)


def zeros(op: Builder) -> Results:
    """Zeros for every result: what sums of nothing are."""
    return tuple(
        op.Expand(op.const(0, fake.dtype), op.dims(fake.shape)) if fake is not None else None for fake in op.result
    )


def affine(op: Builder, x: ir.Value, weight: ir.Value | None, bias: ir.Value | None) -> ir.Value:
    """``x`` times weight plus bias, where they are given."""
    x = x if weight is None else op.Mul(x, weight)
    return x if bias is None else op.Add(x, bias)


def input_gradient(
    op: Builder, grad: ir.Value, normal: ir.Value, rstd: ir.Value, axes: Sequence[int], *, precise: bool = False
) -> ir.Value:
    """The gradient through mean and variance: rstd (grad - mean(grad) - normal mean(grad normal)).

    Means are ``precise`` (`add_up`) where gradients are alike, as behind a mean of all positions of an image.
    """
    along, mean = (
        add_up(op, "ReduceMean", terms, axes, keepdims=True, precise=precise) for terms in (op.Mul(grad, normal), grad)
    )
    return op.Mul(rstd, op.Sub(op.Sub(grad, mean), op.Mul(normal, along)))


def summed(op: Builder, x: ir.Value, axes: Sequence[int]) -> ir.Value:
    """The sum along ``axes``, if any, which are taken away."""
    return add_up(op, "ReduceSum", x, axes, keepdims=False) if axes else x


@lowering(aten.native_layer_norm.default)
@in_float32
def native_layer_norm(
    op: Builder,
    x: ir.Value,
    normalized_shape: Sequence[Dim],
    weight: ir.Value | None,
    bias: ir.Value | None,
    eps: float,
) -> Results:
    """native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> 3 Tensors

    ONNX's operator holds eps and the moments in float32, and so is no use for float64; and ONNX Runtime's adds up the
    terms one after another on the CPU, of which long rows have too many.
    """
    if is_empty(x):
        return nothing(op)
    rank, dtype = len(shape_of(x)), opmath(op.result_dtype)
    axis = rank - len(normalized_shape)
    terms = product(op, normalized_shape)
    is_long = isinstance(terms, int) and terms >= _LONG and not op.on_cuda
    if dtype == torch.float32 and not is_long:
        ones = op.Expand(op.const(1, dtype), op.dims(normalized_shape)) if weight is None else weight
        operands = (x, ones) if bias is None else (x, ones, bias)
        y, mean, rstd = op.LayerNormalization(*operands, axis=axis, epsilon=eps, _outputs=3)
        return y, _saved(op, mean, rstd), rstd
    mean, centred, variance = moments(op, x, range(axis, rank))
    rstd = reciprocal_deviation(op, variance, eps)
    return affine(op, op.Mul(centred, rstd), weight, bias), _saved(op, mean, rstd), rstd


@lowering(aten.native_layer_norm_backward.default)
@in_float32
def native_layer_norm_backward(
    op: Builder,
    grad: ir.Value,
    x: ir.Value,
    normalized_shape: Sequence[Dim],
    mean: ir.Value,
    rstd: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    output_mask: Sequence[bool],
) -> Results:
    """native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape, ...) -> 3 Tensors"""
    if is_empty(x):
        return zeros(op)
    rank = len(shape_of(x))
    axis = rank - len(normalized_shape)
    normal = op.Mul(op.Sub(x, mean), rstd)
    by_input = by_weight = by_bias = None
    if output_mask[0]:
        by_input = input_gradient(op, affine(op, grad, weight, None), normal, rstd, range(axis, rank))
    if output_mask[1] and weight is not None:
        by_weight = summed(op, op.Mul(grad, normal), range(axis))
    if output_mask[2] and bias is not None:
        by_bias = summed(op, grad, range(axis))
    return by_input, by_weight, by_bias


@lowering(aten.native_group_norm.default)
@in_float32
def native_group_norm(
    op: Builder,
    x: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    batch: Dim,
    channels: Dim,
    positions: Dim,
    group: int,
    eps: float,
) -> Results:
    """native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, ...) -> 3 Tensors"""
    if is_empty(x):
        return nothing(op)
    shape = _by_group(op, batch, channels, positions, group)
    mean, centred, variance = moments(op, op.Reshape(x, shape, allowzero=1), [2])
    rstd = reciprocal_deviation(op, variance, eps)
    normal = _like(op, op.Mul(centred, rstd), x)
    y = affine(op, normal, *(by_channel(op, value, x) for value in (weight, bias)))
    return y, op.Squeeze(_saved(op, mean, rstd), [2]), op.Squeeze(rstd, [2])


def _by_group(op: Builder, batch: Dim, channels: Dim, positions: Dim, group: int) -> ir.Value:
    """(batch, group, elements of one), also of an empty batch."""
    return op.dims([batch, group, floordiv(op, times(op, channels, positions), group)])


def _like(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    return op.Reshape(x, op.dims([op.size(y, d) for d in range(len(shape_of(y)))]), allowzero=1)


def by_channel(op: Builder, value: ir.Value | None, x: ir.Value) -> ir.Value | None:
    """A number for each channel, to be multiplied with (batch, channels, ...)."""
    return value and op.Reshape(value, [-1, *[1] * (len(shape_of(x)) - 2)])


@lowering(aten.native_group_norm_backward.default)
@in_float32
def native_group_norm_backward(
    op: Builder,
    grad: ir.Value,
    x: ir.Value,
    mean: ir.Value,
    rstd: ir.Value,
    weight: ir.Value | None,
    batch: Dim,
    channels: Dim,
    positions: Dim,
    group: int,
    output_mask: Sequence[bool],
) -> Results:
    """native_group_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, ...) -> 3 Tensors"""
    if is_empty(x):
        return zeros(op)
    shape = _by_group(op, batch, channels, positions, group)
    mean, rstd = op.Unsqueeze(mean, [2]), op.Unsqueeze(rstd, [2])
    normal = op.Mul(op.Sub(op.Reshape(x, shape, allowzero=1), mean), rstd)
    by_input = by_weight = by_bias = None
    if output_mask[0]:
        weighted = op.Reshape(affine(op, grad, by_channel(op, weight, x), None), shape, allowzero=1)
        by_input = _like(op, input_gradient(op, weighted, normal, rstd, [2], precise=True), x)
    others = [0, *range(2, len(shape_of(x)))]
    if output_mask[1]:
        by_weight = summed(op, op.Mul(grad, _like(op, normal, x)), others)
    if output_mask[2]:
        by_bias = summed(op, grad, others)
    return by_input, by_weight, by_bias
