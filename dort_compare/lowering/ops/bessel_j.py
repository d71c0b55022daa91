"""The Bessel functions of the first kind, J0 and J1, and the spherical j0; computed in float64.

Up to 5 Cephes' j0.c and j1.c as in ATen/native/Math.h, which leaves out the leading 1 of their denominators.
"""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.bessel_waves import ORDER_0, ORDER_1, j_wave
from dort_compare.lowering.ops.polynomial import rational
from dort_compare.lowering.precision import in_float64
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten
prims = torch.ops.prims

_J0 = (
    (
        -4.79443220978201773821e09,
        1.95617491946556577543e12,
        -2.49248344360967716204e14,
        9.70862251047306323952e15,
    ),
    (
        4.99563147152651017219e02,
        1.73785401676374683123e05,
        4.84409658339962045305e07,
        1.11855537045356834862e10,
        2.11277520115489217587e12,
        3.10518229857422583814e14,
        3.18121955943204943306e16,
        1.71086294081043136091e18,
    ),
)
_J0_ZEROS = (5.78318596294678452118, 30.4712623436620863991)
_J1 = (
    (
        -8.99971225705559398224e08,
        4.52228297998194034323e11,
        -7.27494245221818276015e13,
        3.68295732863852883286e15,
    ),
    (
        6.20836478118054335476e02,
        2.56987256757748830383e05,
        8.35146791431949253037e07,
        2.21511595479792499675e10,
        4.74914122079991414898e12,
        7.84369607876235854894e14,
        8.95222336184627338078e16,
        5.32278620332680085395e18,
    ),
)
_J1_ZEROS = (14.6819706421238932572, 49.2184563216946036703)


@lowering(aten.special_bessel_j0.default, prims.bessel_j0.default)
@in_float64
def bessel_j0(op: Builder, x: ir.Value) -> ir.Value:
    """special_bessel_j0(Tensor self) -> Tensor"""
    size = op.Abs(x)
    return op.Where(op.LessOrEqual(size, 5), j0_near(op, size), j_wave(op, size, ORDER_0))


def j0_near(op: Builder, x: ir.Value) -> ir.Value:
    """J0(x), up to 5."""
    square = op.Mul(x, x)
    return op.Mul(_vanishing(op, square, _J0_ZEROS), rational(op, square, _J0))


@lowering(aten.special_bessel_j1.default, prims.bessel_j1.default)
@in_float64
def bessel_j1(op: Builder, x: ir.Value) -> ir.Value:
    """special_bessel_j1(Tensor self) -> Tensor"""
    size = op.Abs(x)
    value = op.Where(op.LessOrEqual(size, 5), j1_near(op, size), j_wave(op, size, ORDER_1))
    return op.Mul(value, op.Sign(x))


def j1_near(op: Builder, x: ir.Value) -> ir.Value:
    """J1(x), up to 5."""
    square = op.Mul(x, x)
    return op.Mul(op.Mul(_vanishing(op, square, _J1_ZEROS), rational(op, square, _J1)), x)


def _vanishing(op: Builder, square: ir.Value, zeros: tuple[float, float]) -> ir.Value:
    return op.Mul(op.Sub(square, zeros[0]), op.Sub(square, zeros[1]))


@lowering(aten.special_spherical_bessel_j0.default, prims.spherical_bessel_j0.default)
@in_float64
def spherical_bessel_j0(op: Builder, x: ir.Value) -> ir.Value:
    """special_spherical_bessel_j0(Tensor x) -> Tensor

    sin(x) / x: 1 at zero, 0 at infinity.
    """
    value = op.Where(op.Equal(x, 0), 1, op.Div(op.Sin(x), x))
    return op.Where(op.IsInf(x), 0, value)
