"""Activations and their derivatives."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from op_rows.operands import elements, finite_gradients, gradients, within
from op_rows.row import FLOATS, INTS, ROUNDING, SUM, Row, Sample, Samples, case, new, special

aten = torch.ops.aten
NUMBERS = (*FLOATS, *INTS)
F = "nn.functional."


def with_arguments(samples: Samples, *arguments: tuple[object, ...]) -> Samples:
    """Each sample's tensors with each of the arguments behind them."""
    return lambda dtype: (case(*tensors, *rest) for rest in arguments for tensors, _ in samples(dtype))


def kinks(*edges: float) -> Samples:
    return lambda dtype: (case(*pair) for pair in finite_gradients(dtype, edges))


activated = within(-9, 9)


def gelus(samples: Samples, dtype: torch.dtype) -> Iterable[Sample]:
    for tensors, _ in samples(dtype):
        yield from (case(*tensors, approximate=approximate) for approximate in ("none", "tanh"))


def halved(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 4, 6))
    yield case(new(dtype, 4, 6), 0)
    yield case(new(dtype, 3, 0, 2), -1)
    yield case(new(dtype, 4, 0), 1)


SMOOTH = (
    Row(aten.silu.default, (F + "silu",), elements, FLOATS, ROUNDING, scale=1),
    Row(aten.gelu.default, (F + "gelu",), lambda d: gelus(activated, d), FLOATS, ROUNDING, scale=1),
    Row(aten.elu.default, (F + "elu", F + "selu"), with_arguments(activated, (), (0.3, 1.5, 2)), FLOATS, SUM),
    Row(aten.celu.default, (F + "celu",), with_arguments(activated, (), (0.3,)), FLOATS, SUM),
    Row(aten.softplus.default, (F + "softplus",), with_arguments(activated, (), (2, 5), (0.3, 20)), FLOATS, SUM),
    Row(aten.mish.default, (F + "mish",), activated, FLOATS, SUM),
    Row(aten.log_sigmoid_forward.default, (F + "logsigmoid",), elements, FLOATS, ROUNDING),
    Row(aten.glu.default, (), halved, FLOATS, ROUNDING),
)


def halved_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 4, 3), new(dtype, 4, 6), -1)
    yield case(new(dtype, 2, 6), new(dtype, 4, 6), 0)
    yield case(new(dtype, 4, 0), new(dtype, 4, 0), -1)


def moderate_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    """Not so far out that 1 - tanh(x)^2 is all rounding."""
    yield case(new(dtype, 300), new(dtype, 300, low=-3, high=3))
    yield case(new(dtype, 5), torch.tensor([0.0, -0.0, 20.0, -20.0, torch.inf], dtype=dtype))


def elu_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for grad, x in finite_gradients(dtype):
        for scales in ((1, 1, 1), (0.3, 1.5, 2)):
            yield case(grad, *scales, False, x)
        yield case(grad, 0.3, 1.5, 2, True, aten.elu.default(x, 0.3, 1.5, 2))


def log_sigmoid_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    for (grad, x), _ in gradients(dtype):
        yield case(grad, x, aten.log_sigmoid_forward.default(x)[1])


DERIVATIVES = (
    Row(aten.silu_backward.default, (F + "silu",), gradients, FLOATS, ROUNDING, scale=16),
    Row(aten.sigmoid_backward.default, ("sigmoid",), gradients, FLOATS, ROUNDING),
    Row(aten.tanh_backward.default, ("tanh",), gradients, FLOATS, ROUNDING),
    Row(aten.gelu_backward.default, (F + "gelu",), lambda d: gelus(moderate_gradients, d), FLOATS, SUM, scale=1),
    Row(aten.elu_backward.default, (F + "elu",), elu_gradients, FLOATS, ROUNDING),
    Row(aten.softplus_backward.default, (F + "softplus",), with_arguments(kinks(), (1, 20), (2, 5)), FLOATS, ROUNDING),
    Row(aten.mish_backward.default, (F + "mish",), kinks(), FLOATS, ROUNDING, scale=16),
    Row(aten.log_sigmoid_backward.default, (F + "logsigmoid",), log_sigmoid_gradients, FLOATS, ROUNDING),
    Row(aten.glu_backward.default, (), halved_gradients, FLOATS, SUM),
)


def weighted(dtype: torch.dtype) -> Iterable[Sample]:
    yield case(new(dtype, 2, 3, 4), new(dtype, 1, 3, 1))
    yield case(special(dtype), torch.full_like(special(dtype), 0.25))
    yield case(new(dtype), new(dtype))


def weighted_gradients(dtype: torch.dtype) -> Iterable[Sample]:
    return (case(new(dtype, *x.shape), x, weight) for (x, weight), _ in weighted(dtype))


def noisy(dtype: torch.dtype) -> Iterable[Sample]:
    for tensors, _ in elements(dtype):
        yield case(*tensors, torch.ones_like(tensors[0]), 0.1, 0.3, False)


PIECEWISE = (
    Row(aten.relu.default, (F + "relu",), elements, NUMBERS),
    Row(aten.threshold.default, (F + "threshold",), with_arguments(elements, (0, 7), (0.3, 2.5)), NUMBERS),
    Row(aten.threshold_backward.default, (F + "relu",), with_arguments(gradients, (0,), (0.3,)), NUMBERS),
    Row(aten.leaky_relu.default, (F + "leaky_relu",), with_arguments(elements, (), (0.3,), (-1,)), FLOATS, ROUNDING),
    Row(
        aten.leaky_relu_backward.default, (F + "leaky_relu",), with_arguments(gradients, (0.3, False)), FLOATS, ROUNDING
    ),
    Row(aten.rrelu_with_noise.default, (), noisy, FLOATS, ROUNDING),
    Row(aten.rrelu_with_noise_functional.default, (), noisy, FLOATS, ROUNDING),
    Row(aten._prelu_kernel.default, (F + "prelu",), weighted, FLOATS, ROUNDING),
    Row(aten._prelu_kernel_backward.default, (F + "prelu",), weighted_gradients, FLOATS, ROUNDING),
    Row(aten.hardtanh.default, (F + "hardtanh", F + "relu6"), with_arguments(elements, (), (-0.3, 2.5)), FLOATS),
    Row(aten.hardtanh_backward.default, (F + "hardtanh",), with_arguments(kinks(-1, 2), (-1, 2), (-0.3, 0.3)), FLOATS),
    Row(aten.hardsigmoid.default, (F + "hardsigmoid",), elements, FLOATS, ROUNDING),
    Row(aten.hardsigmoid_backward.default, (F + "hardsigmoid",), kinks(-3, 3), FLOATS, ROUNDING),
    Row(aten.hardswish.default, (F + "hardswish",), within(-4, 4), FLOATS, ROUNDING),
    Row(aten.hardswish_backward.default, (F + "hardswish",), kinks(-3, 3), FLOATS, ROUNDING),
    Row(aten.softshrink.default, (F + "softshrink",), with_arguments(elements, (), (0.3,), (0,)), FLOATS),
    Row(aten.softshrink_backward.default, (F + "softshrink",), with_arguments(kinks(), (0.5,), (0.3,)), FLOATS),
    Row(aten.hardshrink.default, (F + "hardshrink",), with_arguments(elements, (), (0.3,), (0,)), FLOATS),
    Row(aten.hardshrink_backward.default, (F + "hardshrink",), with_arguments(kinks(), (0.5,), (0.3,)), FLOATS),
)

ROWS = (*SMOOTH, *DERIVATIVES, *PIECEWISE)
