"""Largest elements of windows, where they stood, and the gradients that go back there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.branches import either
from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import refusing_negative
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import product
from dort_compare.lowering.spatial import each
from dort_compare.lowering.values import Dim, dtype_of, is_empty, shape_of
from dort_compare.lowering.windows import Windows, windowed

aten = torch.ops.aten
Values = tuple[ir.Value, ir.Value | None]

_EXACT_IN_FLOAT32 = 2**24
"""Every integer up to it is a float32."""


@lowering(aten.max_pool2d_with_indices.default)
def max_pool2d_with_indices(op: Builder, x: ir.Value, kernel_size: Sequence[int], *geometry: Any) -> Values:
    """max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], ...) -> (Tensor, Tensor)"""
    return _max_pool(op, x, 2, kernel_size, *geometry)


@lowering(aten.max_pool3d_with_indices.default)
def max_pool3d_with_indices(op: Builder, x: ir.Value, kernel_size: Sequence[int], *geometry: Any) -> Values:
    """max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[], ...) -> (Tensor, Tensor)"""
    return _max_pool(op, x, 3, kernel_size, *geometry)


def _max_pool(
    op: Builder,
    x: ir.Value,
    rank: int,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Values:
    """ONNX counts positions through the whole tensor, torch through one channel of one image.

    For torch NaN is the largest, the last if there are several; ONNX Runtime may pass over it.
    """
    kernel = each(kernel_size, rank)
    strides = each(stride, rank) if len(stride) else kernel
    pads, dilations = each(padding, rank), each(dilation, rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    attributes: dict[str, Any] = {
        "kernel_shape": kernel,
        "dilations": dilations,
        **window_attributes(op, x, reach, strides, pads, ceil_mode),
    }
    steps = _result(op).shape[-rank:]
    if any(map(_has_empty_window, _spatial(op, x, rank), steps, kernel, strides, pads, dilations)):
        raise op.unsupported("a window of nothing but padding, where ONNX Runtime's largest is no infinity")
    batched = batch(op, _comparable(op, x), rank)
    if not op.wanted(1):
        values = _largest(op, batched, attributes)
        return op.cast(unbatch(op, values, rank), op.result_dtype), None
    values, places = op.MaxPool(batched, **attributes, _outputs=2)
    places = op.Mod(places, op.const(product(op, _spatial(op, x, rank))))
    if op.result_dtype.is_floating_point:
        last_nan = op.MaxPool(batch(op, _nan_places(op, x, rank), rank), **attributes)
        has_nan = _is_place(op, last_nan)
        values = _nan_where(op, has_nan, values)
        places = op.Where(has_nan, op.cast(last_nan, torch.int64), places)
    return op.cast(unbatch(op, values, rank), op.result_dtype), unbatch(op, places, rank)


def _largest(op: Builder, x: ir.Value, attributes: dict[str, Any]) -> ir.Value:
    """Where nobody asks for positions it is enough to know what is not finite, if anything is: the sum tells."""
    values = op.MaxPool(x, **attributes)
    if not op.result_dtype.is_floating_point:
        return values
    with_extremes = partial(_with_extremes, op, x, values, attributes)
    if op.on_cuda:  # it would wait for what decides
        return with_extremes()
    total = op.ReduceSum(x, keepdims=0)
    is_finite = op.Equal(op.Sub(total, total), 0)
    (found,) = either(op, is_finite, lambda: [op.Identity(values)], lambda: [with_extremes()])
    return found


def _with_extremes(op: Builder, x: ir.Value, values: ir.Value, attributes: dict[str, Any]) -> ir.Value:
    """The largest ``values``, of which ONNX Runtime passes over NaN, and beside padding takes the lowest number for the
    largest of negative infinities."""
    is_nan, is_infinite = (op.cast(found, torch.float32) for found in (op.IsNaN(x), op.IsInf(x, detect_positive=0)))
    mark = op.MaxPool(op.Sub(is_nan, is_infinite), **attributes)
    infinite = op.const(-math.inf, opmath(op.result_dtype))
    return _nan_where(op, op.Greater(mark, 0), op.Where(op.Less(mark, 0), infinite, values))


def _nan_where(op: Builder, has_nan: ir.Value, values: ir.Value) -> ir.Value:
    return op.Where(has_nan, op.const(math.nan, opmath(op.result_dtype)), values)


def _has_empty_window(size: Dim, steps: Dim, kernel: int, stride: int, padding: int, dilation: int) -> bool:
    """Whether all that a window reads along a dimension may be padding: between dilated elements the input fits."""
    if dilation == 1 or not isinstance(size, int) or not isinstance(steps, int):
        return False
    starts = (step * stride - padding for step in range(steps))
    return not all(any(0 <= start + k * dilation < size for k in range(kernel)) for start in starts)


def _comparable(op: Builder, x: ir.Value) -> ir.Value:
    """Integers as float64, in which ONNX Runtime can compare them."""
    dtype = op.result_dtype
    if dtype == torch.int64:
        raise op.unsupported("int64, which ONNX Runtime does not pool")
    return op.cast(x, opmath(dtype) if dtype.is_floating_point else torch.float64)


def _nan_places(op: Builder, x: ir.Value, rank: int) -> ir.Value:
    """Where an element is NaN its position, elsewhere -1, in the narrowest floating dtype that ONNX Runtime pools."""
    sizes = _spatial(op, x, rank)
    number = product(op, sizes)
    dtype = torch.float32 if isinstance(number, int) and number <= _EXACT_IN_FLOAT32 else torch.float64
    numbered = op.cast(op.Range(op.const(0), op.const(number), op.const(1)), dtype)
    is_nan = op.IsNaN(op.cast(x, opmath(op.result_dtype)))
    return op.Where(is_nan, op.Reshape(numbered, op.dims(sizes)), op.const(-1, dtype))


def _is_place(op: Builder, last_nan: ir.Value) -> ir.Value:
    return op.GreaterOrEqual(last_nan, op.const(0, dtype_of(last_nan)))


def window_attributes(
    op: Builder, x: ir.Value, reach: Sequence[int], strides: list[int], padding: list[int], ceil_mode: bool
) -> dict[str, Any]:
    """The attributes that say how many windows there are; ``reach`` is how far each one goes.

    torch lets no window start in the padding behind, ONNX's shape inference did before opset 22: padding that only such
    a window would read is taken away.
    """
    if not ceil_mode:
        return {"strides": strides, "pads": padding * 2}
    rank = len(reach)
    sizes, steps = static_sizes(op, x, rank), _result(op).shape[-rank:]
    behind, rounded_up = list(padding), False
    for d, (size, n, k, stride, pad) in enumerate(zip(sizes, steps, reach, strides, padding, strict=True)):
        if n != (size + 2 * pad - k) // stride + 1:
            rounded_up = True
        else:
            behind[d] = max((n - 1) * stride + k - size - pad, 0)
    return {"strides": strides, "pads": padding + behind, "ceil_mode": int(rounded_up)}


def _result(op: Builder) -> torch.Tensor:
    return op.result[0] if isinstance(op.result, tuple) else op.result


def batch(op: Builder, x: ir.Value, rank: int) -> ir.Value:
    """``x`` with a batch of one in front where torch was given a single image."""
    return op.Unsqueeze(x, [0]) if _single(op, rank) else x


def unbatch(op: Builder, x: ir.Value, rank: int) -> ir.Value:
    """Takes back what ``batch`` added."""
    return op.Squeeze(x, [0]) if _single(op, rank) else x


def _single(op: Builder, rank: int) -> bool:
    return _result(op).ndim == rank + 1


def _spatial(op: Builder, x: ir.Value, rank: int) -> list[Dim]:
    return [op.size(x, d) for d in range(-rank, 0)]


@lowering(aten.adaptive_max_pool2d.default)
def adaptive_max_pool2d(op: Builder, x: ir.Value, output_size: Sequence[int]) -> Values:
    """adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)"""
    return _adaptive_max_pool(op, x, output_size)


@lowering(aten.adaptive_max_pool3d.default)
def adaptive_max_pool3d(op: Builder, x: ir.Value, output_size: Sequence[int]) -> Values:
    """adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)"""
    return _adaptive_max_pool(op, x, output_size)


def _adaptive_max_pool(op: Builder, x: ir.Value, output_size: Sequence[int]) -> Values:
    """A max-pool where the windows are equal; else every window is laid out, and its first maximum found there."""
    rank = len(output_size)
    leading = len(shape_of(x)) - rank
    sizes = static_sizes(op, x, rank)
    if is_empty(op.result[0]):
        empty = op.dims(op.result[0].shape)
        return op.Expand(op.const(0, op.result_dtype), empty), op.Expand(op.const(0), empty)
    if all(size % steps == 0 for size, steps in zip(sizes, output_size, strict=True)):
        return _max_pool(op, x, rank, [size // steps for size, steps in zip(sizes, output_size, strict=True)])
    windows = [adaptive_windows(size, steps).places for size, steps in zip(sizes, output_size, strict=True)]
    first = op.ArgMax(_laid_out(op, _comparable(op, x), leading, windows), axis=-1, keepdims=0)
    numbered = _numbered(sizes, windows)
    starts = torch.arange(math.prod(output_size)).reshape(list(output_size)) * numbered.shape[1]
    places = op.Gather(op.const(numbered.flatten().tolist()), op.Add(first, op.const(starts.tolist())))
    last_nan = op.ReduceMax(_laid_out(op, _nan_places(op, x, rank), leading, windows), [-1], keepdims=0)
    places = op.Where(_is_place(op, last_nan), op.cast(last_nan, torch.int64), places)
    return _taken(op, x, places, rank), places


def static_sizes(op: Builder, x: ir.Value, rank: int) -> list[int]:
    """The spatial sizes, for a lowering that must know them."""
    sizes = shape_of(x)[-rank:]
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < rank:
        raise op.unsupported("a symbolic size")
    return known


def adaptive_windows(size: int, steps: int) -> Windows:
    """torch's windows: from floor(i size / steps) up to ceil((i + 1) size / steps)."""
    starts = [i * size // steps for i in range(steps)]
    return Windows.between(starts, [-(-(i + 1) * size // steps) for i in range(steps)])


def _laid_out(op: Builder, x: ir.Value, leading: int, windows: Sequence[torch.Tensor]) -> ir.Value:
    """From (leading..., sizes) to (leading..., outputs, elements of a window).

    Each dimension in turn is the first behind the leading ones when its windows are taken, as whole blocks are gathered
    faster than single elements.
    """
    rank = len(windows)
    for d in range(rank):
        if d:
            place, others = leading + 2 * d, range(leading, leading + rank + d)
            x = op.Transpose(x, perm=[*range(leading), place, *(each for each in others if each != place)])
        x = windowed(op, x, leading, windows[d])
    outputs = [leading + 2 * d for d in reversed(range(rank))]
    turned = op.Transpose(x, perm=[*range(leading), *outputs, *[d + 1 for d in outputs]])
    return op.Reshape(turned, [*[0] * (leading + rank), -1])


def _numbered(sizes: Sequence[int], windows: Sequence[torch.Tensor]) -> torch.Tensor:
    """For each output, in order, the positions that its window covers, in order."""
    numbers = torch.arange(math.prod(sizes)).reshape(list(sizes))
    for d, places in enumerate(windows):
        numbers = numbers.movedim(d, 0)[places].movedim((0, 1), (d, -1))
    return numbers.reshape(math.prod(len(places) for places in windows), -1)


def _taken(op: Builder, x: ir.Value, places: ir.Value, rank: int) -> ir.Value:
    """The elements of ``x`` at ``places`` of their channel."""
    axis = len(shape_of(x)) - rank
    rows = op.GatherElements(op.Flatten(x, axis=axis), op.Flatten(places, axis=axis), axis=1)
    return op.Reshape(rows, op.Shape(places))


@lowering(aten.max_pool2d_with_indices_backward.default)
@in_float32
def max_pool2d_with_indices_backward(op: Builder, grad: ir.Value, x: ir.Value, *geometry: Any) -> ir.Value:
    """max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, ..., Tensor indices) -> Tensor"""
    return _added_at(op, grad, x, geometry[-1], 2)


@lowering(aten.max_pool3d_with_indices_backward.default)
@in_float32
def max_pool3d_with_indices_backward(op: Builder, grad: ir.Value, x: ir.Value, *geometry: Any) -> ir.Value:
    """max_pool3d_with_indices_backward(Tensor grad_output, Tensor self, ..., Tensor indices) -> Tensor"""
    return _added_at(op, grad, x, geometry[-1], 3)


@lowering(aten.adaptive_max_pool2d_backward.default)
@in_float32
def adaptive_max_pool2d_backward(op: Builder, grad: ir.Value, x: ir.Value, indices: ir.Value) -> ir.Value:
    """adaptive_max_pool2d_backward(Tensor grad_output, Tensor self, Tensor indices) -> Tensor"""
    return _added_at(op, grad, x, indices, 2)


@lowering(aten.adaptive_max_pool3d_backward.default)
@in_float32
def adaptive_max_pool3d_backward(op: Builder, grad: ir.Value, x: ir.Value, indices: ir.Value) -> ir.Value:
    """adaptive_max_pool3d_backward(Tensor grad_output, Tensor self, Tensor indices) -> Tensor"""
    return _added_at(op, grad, x, indices, 3)


def _added_at(op: Builder, grad: ir.Value, x: ir.Value, indices: ir.Value, rank: int) -> ir.Value:
    """Zeros like ``x``, to which each gradient is added at its index: windows overlap, and share their maxima."""
    shape = op.dims([op.size(x, d) for d in range(len(shape_of(x)))])
    zeros = op.Expand(op.const(0, opmath(op.result.dtype)), shape)
    if is_empty(grad):
        return zeros
    axis = len(shape_of(x)) - rank
    rows = [op.Flatten(value, axis=axis) for value in (zeros, indices, grad)]
    return op.Reshape(op.ScatterElements(*rows, axis=1, reduction="add"), shape)


@lowering(aten.max_unpool2d.default, aten.max_unpool3d.default)
def max_unpool(op: Builder, x: ir.Value, indices: ir.Value, output_size: Sequence[Dim], *geometry: Any) -> ir.Value:
    """max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor

    Zeros but for the elements of ``x``, each where its index says; of two with one index the last remains.
    """
    rank = len(output_size)
    axis = len(shape_of(x)) - rank
    shape = op.dims([*[op.size(x, d) for d in range(axis)], *output_size])
    zeros = op.Expand(op.const(0, op.result.dtype), shape)
    if is_empty(x):
        return zeros
    rows = [op.Flatten(value, axis=axis) for value in (zeros, refusing_negative(op, indices), x)]
    return op.Reshape(op.ScatterElements(*rows, axis=1), shape)
