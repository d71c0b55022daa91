"""Convolutions."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from op_calls import Call

from op_rows.row import HALF, MATMUL, Row, Sample, case, new

aten = torch.ops.aten

MANY_CHANNELS = 20
"""More than any kernel here has elements: the gradient by the weight is in products."""
GEOMETRIES = (
    # size, kernel, stride, padding, dilation, output padding, groups
    ([5], [3], [1], [0], [1], [0], 1),
    ([8], [3], [3], [1], [2], [0], 2),
    ([7, 6], [3, 2], [2, 3], [1, 0], [1, 2], [0, 0], 1),
    ([7, 6], [3, 2], [2, 3], [2, 1], [2, 1], [1, 2], 2),
    ([5, 5], [1, 1], [2, 2], [0, 0], [1, 1], [1, 0], 1),
    ([4, 4], [3, 3], [1, 1], [2, 1], [1, 1], [0, 0], 4),
    ([4, 5], [2, 2], [1, 2], [1, 0], [3, 3], [1, 1], 1),
    ([3, 4, 5], [2, 3, 2], [1, 2, 3], [1, 1, 0], [1, 1, 2], [0, 1, 1], 2),
)

LARGE = (
    # size, kernel, padding, dilation, channels, channels of the gradient, groups
    ([400], [3], [2], [2], 4, 2, 1),
    ([300], [5], [2], [1], 4, 4, 4),
    ([30, 40], [3, 2], [1, 0], [1, 3], 6, 3, 1),
    ([30, 20], [3, 5], [0, 4], [2, 1], 6, 4, 2),
    ([12, 12, 14], [3, 1, 2], [1, 0, 1], [1, 1, 1], 4, 4, 2),
    ([30, 40], [1, 1], [1, 1], [1, 1], 4, 4, 4),
)


def convolved(dtype: torch.dtype) -> Iterable[Sample]:
    for size, kernel, stride, padding, dilation, output_padding, groups in GEOMETRIES:
        x, bias = new(dtype, 2, 4, *size), new(dtype, 4 * groups)
        kernels = new(dtype, 4 * groups, 4 // groups, *kernel)
        yield case(x, kernels, bias, stride, padding, dilation, False, [0] * len(size), groups)
        transposed = new(dtype, 4, 4, *kernel)
        yield case(x, transposed, None, stride, padding, dilation, True, output_padding, groups)
    yield case(new(dtype, 0, 4, 5), new(dtype, 2, 4, 3), new(dtype, 2), [1], [0], [1], False, [0], 1)
    yield case(new(dtype, 2, 0, 5), new(dtype, 3, 0, 3), new(dtype, 3), [1], [0], [1], False, [0], 1)
    yield case(new(dtype, 1, 1, 5, 4), new(dtype, 1, 1, 2, 2), None, [2], [1], [1], False, [0], 1)


def gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for args, _ in convolved(dtype):
        x, weight, bias, *geometry = args
        grad = new(dtype, *aten.convolution.default(*args).shape)
        sizes = None if bias is None else list(bias.shape)
        yield case(grad, x, weight, sizes, *geometry, [True, True, bias is not None])
    yield case(grad, x, weight, [1], *geometry, [False, True, False])
    yield case(grad, x, weight, [1], *geometry, [True, False, True])
    yield from weight_gradients(dtype)
    yield from input_gradients(dtype)


def weight_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    """Of many channels."""
    channels = MANY_CHANNELS
    for size, kernel, stride, padding, dilation, output_padding, _ in GEOMETRIES:
        x, weight = new(dtype, 2, channels, *size), new(dtype, 3, channels, *kernel)
        geometry = [stride, padding, dilation, False, [0] * len(size), 1]
        grad = new(dtype, *aten.convolution.default(x, weight, None, *geometry).shape)
        yield case(grad, x, weight, None, *geometry, [False, True, False])
        x, weight = new(dtype, 2, 3, *size), new(dtype, 3, channels, *kernel)
        geometry = [stride, padding, dilation, True, output_padding, 1]
        grad = new(dtype, *aten.convolution.default(x, weight, None, *geometry).shape)
        yield case(grad, x, weight, None, *geometry, [False, True, False])


def input_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    """Of kernels so small beside the signal that they are flipped, but for the last, whose padding is beyond reach."""
    for size, kernel, padding, dilation, channels, out, groups in LARGE:
        x, weight = new(dtype, 2, channels, *size), new(dtype, out, channels // groups, *kernel)
        geometry = [[1] * len(size), padding, dilation, False, [0] * len(size), groups]
        grad = new(dtype, *aten.convolution.default(x, weight, None, *geometry).shape)
        yield case(grad, x, weight, None, *geometry, [True, False, False])


def is_of_integers(call: Call) -> bool:
    return not call.args[0].dtype.is_floating_point


DTYPES = (torch.float32, *HALF)
"""ONNX Runtime's CPU provider convolves no float64."""

ROWS = (
    Row(
        aten.convolution.default,
        ("nn.functional.conv2d",),
        convolved,
        DTYPES,
        MATMUL,
        skip=is_of_integers,
        reason="refused",
    ),
    Row(
        aten.convolution_backward.default,
        ("nn.functional.conv_transpose2d",),
        gradients,
        DTYPES,
        MATMUL,
        scale=8.0,
    ),
)
