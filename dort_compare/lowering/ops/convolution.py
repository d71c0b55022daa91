"""Convolutions and their gradients, each of them a convolution again, or products of matrices."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.padded import padded
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.spatial import each
from dort_compare.lowering.sums import add_up
from dort_compare.lowering.values import Dim, dtype_of, fake_of, is_empty, shape_of

aten = torch.ops.aten
_BEGIN = -(2**63)
_FLIPPED_PAYS = 5
"""Elements of a gradient for each of a kernel, from which on it pays to flip it; see benchmarks/flipped_kernels.py."""


@dataclass(frozen=True)
class Geometry:
    """What Conv and ConvTranspose have in common, a number for each spatial dimension but for the groups."""

    strides: list[int]
    padding: list[int]
    dilations: list[int]
    groups: int

    @classmethod
    def of(
        cls, rank: int, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
    ) -> Geometry:
        return cls(each(stride, rank), each(padding, rank), each(dilation, rank), groups)

    def attributes(self) -> dict[str, Any]:
        pads = self.padding * 2
        return {"strides": self.strides, "pads": pads, "dilations": self.dilations, "group": self.groups}


@lowering(aten.convolution.default)
@in_float32
def convolution(
    op: Builder,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> ir.Value:
    """convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, ...) -> Tensor"""
    _refuse_integers(op, x)
    if is_empty(op.result):
        return op.Expand(op.const(0, opmath(op.result.dtype)), op.dims(op.result.shape))
    rank = len(shape_of(x)) - 2
    if not transposed and _are_symbolic(padding):
        border: list[Dim] = [0, 0, *each(padding, rank)]
        x, padding = padded(op, x, border * 2, op.const(0, dtype_of(x))), [0]
    _refuse_symbolic(op, groups, stride, padding, dilation, output_padding)
    operands = (x, weight) if bias is None else (x, weight, bias)
    geometry = Geometry.of(rank, stride, padding, dilation, groups)
    if transposed:
        return _transposed(op, operands, geometry, output_padding)
    return op.Conv(*operands, **geometry.attributes())


def _transposed(
    op: Builder, operands: Sequence[ir.Value], geometry: Geometry, output_padding: Sequence[int]
) -> ir.Value:
    """Output padding gives back what padding cut from the end; only beyond that it is ONNX's, less than the stride."""
    added = each(output_padding, len(geometry.strides))
    ends = [max(pad - more, 0) for pad, more in zip(geometry.padding, added, strict=True)]
    beyond = [max(more - pad, 0) for pad, more in zip(geometry.padding, added, strict=True)]
    if any(more >= stride for more, stride in zip(beyond, geometry.strides, strict=True)):
        raise op.unsupported("an output padding beyond the padding by a whole stride")
    attributes = {**geometry.attributes(), "pads": geometry.padding + ends}
    return op.ConvTranspose(*operands, **attributes, output_padding=beyond)


def _are_symbolic(numbers: Sequence[Dim]) -> bool:
    return any(isinstance(number, ir.Value) for number in numbers)


def _refuse_symbolic(op: Builder, groups: Dim, *attributes: Sequence[Dim]) -> None:
    """ONNX has them as attributes, which are the same for all sizes."""
    if any(map(_are_symbolic, attributes)):
        raise op.unsupported("a convolution by symbolic strides, dilations or padding")
    if _are_symbolic([groups]):
        raise op.unsupported("a convolution in a symbolic number of groups")


def _refuse_integers(op: Builder, x: ir.Value) -> None:
    if not fake_of(x).dtype.is_floating_point:
        raise op.unsupported("a convolution of integers")


@lowering(aten.convolution_backward.default)
@in_float32
def convolution_backward(
    op: Builder,
    grad: ir.Value,
    x: ir.Value,
    weight: ir.Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[ir.Value | None, ...]:
    """convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, ...) -> 3 Tensors

    A transposed convolution is the gradient of a convolution by its input; so the gradient of either by its input is
    the other. For the gradient by the weight see ``_by_weight``.
    """
    _refuse_integers(op, x)
    _refuse_symbolic(op, groups, stride, padding, dilation, output_padding)
    rank = len(shape_of(x)) - 2
    if is_empty(x, weight):
        zero = op.const(0, opmath(op.result_dtype))
        return tuple(op.Expand(zero, op.dims(fake.shape)) if fake is not None else None for fake in op.result)
    geometry = Geometry.of(rank, stride, padding, dilation, groups)
    by_input = by_weight = by_bias = None
    if output_mask[0]:
        by_input = (_down if transposed else _up)(op, grad, weight, x, geometry)
    if output_mask[1]:
        signal, kernel = (grad, x) if transposed else (x, grad)
        kernel_size = [op.size(weight, d) for d in range(2, rank + 2)]
        by_weight = _by_weight(op, signal, kernel, kernel_size, geometry)
    if output_mask[2]:
        by_bias = add_up(op, "ReduceSum", grad, [0, *range(2, rank + 2)], keepdims=False)
    return by_input, by_weight, by_bias


def _down(op: Builder, grad: ir.Value, weight: ir.Value, x: ir.Value, geometry: Geometry) -> ir.Value:
    """The gradient of a transposed convolution; what its output padding added may reach one step too far."""
    sizes = [op.size(x, d) for d in range(2, len(shape_of(x)))]
    return _cropped(op, op.Conv(grad, weight, **geometry.attributes()), sizes)


def _up(op: Builder, grad: ir.Value, weight: ir.Value, x: ir.Value, geometry: Geometry) -> ir.Value:
    """The gradient of a convolution; the output padding is what the strides left unread at the end."""
    unread = []
    for d, (stride, pad, dilation) in enumerate(
        zip(geometry.strides, geometry.padding, geometry.dilations, strict=True), start=2
    ):
        size, steps, kernel = shape_of(x)[d], shape_of(grad)[d], shape_of(weight)[d]
        if stride == 1:
            unread.append(0)
        elif isinstance(size, int) and isinstance(steps, int) and isinstance(kernel, int):
            unread.append(size - ((steps - 1) * stride + (kernel - 1) * dilation + 1 - 2 * pad))
        else:
            raise op.unsupported("the gradient of a strided convolution over a symbolic size")
    if _is_cheaper_flipped(weight, grad, geometry):
        return _with_flipped_kernel(op, grad, weight, geometry)
    return op.ConvTranspose(grad, weight, **geometry.attributes(), output_padding=unread)


def _is_cheaper_flipped(weight: ir.Value, grad: ir.Value, geometry: Geometry) -> bool:
    """Whether a convolution with the flipped kernel computes what a transposed one does, and faster.

    ONNX Runtime multiplies all channels of a transposed convolution, then adds up the windows that overlap, which is
    slow where it makes more channels than it reads, or goes group by group. To flip the kernel takes time in turn.
    """
    sizes = [size for size in shape_of(weight) if isinstance(size, int)]
    if len(sizes) < len(shape_of(weight)) or any(stride != 1 for stride in geometry.strides):
        return False
    out, by_group, *kernel = sizes
    reach = [dilation * (size - 1) for dilation, size in zip(geometry.dilations, kernel, strict=True)]
    if any(map(operator.lt, reach, geometry.padding)):
        return False
    channels, steps = by_group * geometry.groups, math.prod(size for size in shape_of(grad) if isinstance(size, int))
    return out <= channels and _FLIPPED_PAYS * math.prod(sizes) * out <= steps * channels


def _with_flipped_kernel(op: Builder, grad: ir.Value, weight: ir.Value, geometry: Geometry) -> ir.Value:
    """A transposed convolution by steps of 1 as a convolution: channels swapped, each kernel turned round."""
    out, by_group, *kernel = map(int, shape_of(weight))
    groups, rank = geometry.groups, len(kernel)
    apart = op.Reshape(weight, [groups, out // groups, by_group, *kernel])
    swapped = op.Transpose(apart, perm=[0, 2, 1, *range(3, rank + 3)])
    turned = op.Reshape(swapped, [groups * by_group, out // groups, *kernel])
    flipped = op.Slice(turned, [-1] * rank, [_BEGIN] * rank, list(range(2, rank + 2)), [-1] * rank)
    reach = zip(geometry.dilations, kernel, geometry.padding, strict=True)
    padding = [dilation * (size - 1) - pad for dilation, size, pad in reach]
    return op.Conv(grad, flipped, **replace(geometry, padding=padding).attributes())


def _by_weight(op: Builder, signal: ir.Value, steps: ir.Value, kernel: Sequence[Dim], geometry: Geometry) -> ir.Value:
    """The sum over batch and positions p of steps[n, o, p] signal[n, i, p stride + k dilation - padding], by (o, i, k).

    For every k it is a product of matrices, with as many columns as the signal has channels; ONNX Runtime's convolution
    would be one with as many columns as there are k. So the products are for many channels and few k.
    """
    known = [size for size in kernel if isinstance(size, int)]
    channels, *others = (shape_of(signal)[1], *shape_of(steps))
    is_known = len(known) == len(kernel) and all(isinstance(size, int) for size in (channels, *others))
    if is_known and geometry.groups == 1 and math.prod(known) < channels:
        return _in_products(op, signal, steps, known, geometry)
    return _in_one_convolution(op, signal, steps, kernel, geometry)


def _in_products(op: Builder, signal: ir.Value, steps: ir.Value, kernel: Sequence[int], geometry: Geometry) -> ir.Value:
    """For every k the steps, a row a channel, times what of the signal they meet, a column a channel."""
    rank = len(kernel)
    _, out, *positions = map(int, shape_of(steps))
    channels = int(shape_of(signal)[1])
    rows = op.Reshape(op.Transpose(steps, perm=[1, 0, *range(2, rank + 2)]), [out, -1])
    padded = op.Transpose(signal, perm=[0, *range(2, rank + 2), 1])
    if any(geometry.padding):
        padded = op.Pad(padded, [0, *geometry.padding, 0] * 2)
    products = []
    for k in itertools.product(*map(range, kernel)):
        starts = [at * dilation for at, dilation in zip(k, geometry.dilations, strict=True)]
        reached = zip(starts, positions, geometry.strides, strict=True)
        ends = [start + (number - 1) * stride + 1 for start, number, stride in reached]
        met = op.Slice(padded, starts, ends, list(range(1, rank + 1)), geometry.strides)
        products.append(op.MatMul(rows, op.Reshape(met, [-1, channels])))
    by_kernel = op.Reshape(op.Concat(*products, axis=0), [*kernel, out, channels])
    return op.Transpose(by_kernel, perm=[rank, rank + 1, *range(rank)])


def _in_one_convolution(
    op: Builder, signal: ir.Value, steps: ir.Value, kernel: Sequence[Dim], geometry: Geometry
) -> ir.Value:
    """A convolution over k of the signal with the steps as kernel.

    Channels are its batch, the batch its channels, stride and dilation change parts. Groups stay groups.
    """
    groups, rank = geometry.groups, len(kernel)
    swapped = [1, 0, *range(2, rank + 2)]
    by_channel = _grouped_channels_first(op, signal, groups) if groups > 1 else op.Transpose(signal, perm=swapped)
    turned = Geometry(geometry.dilations, geometry.padding, geometry.strides, groups)
    by_kernel = op.Conv(by_channel, op.Transpose(steps, perm=swapped), **turned.attributes())
    return op.Transpose(_cropped(op, by_kernel, kernel), perm=swapped)


def _grouped_channels_first(op: Builder, x: ir.Value, groups: int) -> ir.Value:
    """From (batch, groups * channels, ...) to (channels, groups * batch, ...)."""
    channels = shape_of(x)[1]
    if not isinstance(channels, int):
        raise op.unsupported("a symbolic number of channels")
    sizes = [op.size(x, d) for d in range(2, len(shape_of(x)))]
    apart = op.Reshape(x, op.dims([0, groups, channels // groups, *sizes]))
    turned = op.Transpose(apart, perm=[2, 1, 0, *range(3, len(sizes) + 3)])
    return op.Reshape(turned, op.dims([channels // groups, -1, *sizes]))


def _cropped(op: Builder, x: ir.Value, sizes: Sequence[Dim]) -> ir.Value:
    """The first ``sizes`` of the dimensions after the first two."""
    rank = len(sizes)
    if x.shape is not None and list(x.shape[2:]) == list(sizes):
        return x
    return op.Slice(x, [0] * rank, op.dims(sizes), list(range(2, rank + 2)))
