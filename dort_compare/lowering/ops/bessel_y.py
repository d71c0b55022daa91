"""The Bessel functions of the second kind, Y0 and Y1; computed in float64.

Up to 5 Cephes' j0.c and j1.c as in ATen/native/Math.h, which leaves out the leading 1 of their denominators.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.bessel_j import j0_near, j1_near
from dort_compare.lowering.ops.bessel_waves import ORDER_0, ORDER_1, y_wave
from dort_compare.lowering.ops.polynomial import rational
from dort_compare.lowering.precision import in_float64
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten

_Y0 = (
    (
        1.55924367855235737965e04,
        -1.46639295903971606143e07,
        5.43526477051876500413e09,
        -9.82136065717911466409e11,
        8.75906394395366999549e13,
        -3.46628303384729719441e15,
        4.42733268572569800351e16,
        -1.84950800436986690637e16,
    ),
    (
        1.04128353664259848412e03,
        6.26107330137134956842e05,
        2.68919633393814121987e08,
        8.64002487103935000337e10,
        2.02979612750105546709e13,
        3.17157752842975028269e15,
        2.50596256172653059228e17,
    ),
)
_Y1 = (
    (
        1.26320474790178026440e09,
        -6.47355876379160291031e11,
        1.14509511541823727583e14,
        -8.12770255501325109621e15,
        2.02439475713594898196e17,
        -7.78877196265950026825e17,
    ),
    (
        5.94301592346128195359e02,
        2.35564092943068577943e05,
        7.34811944459721705660e07,
        1.87601316108706159478e10,
        3.88231277496238566008e12,
        6.20557727146953693363e14,
        6.87141087355300489866e16,
        3.97270608116560655612e18,
    ),
)


@lowering(aten.special_bessel_y0.default)
@in_float64
def bessel_y0(op: Builder, x: ir.Value) -> ir.Value:
    """special_bessel_y0(Tensor self) -> Tensor

    Up to 5 a rational function + 2 / pi log(x) J0(x), so -inf at zero and NaN below.
    """
    logarithm = op.Mul(op.Mul(op.Log(x), 2 / math.pi), j0_near(op, x))
    near = op.Add(rational(op, op.Mul(x, x), _Y0), logarithm)
    return op.Where(op.LessOrEqual(x, 5), near, y_wave(op, x, ORDER_0))


@lowering(aten.special_bessel_y1.default)
@in_float64
def bessel_y1(op: Builder, x: ir.Value) -> ir.Value:
    """special_bessel_y1(Tensor self) -> Tensor

    Up to 5 x times a rational function + 2 / pi (log(x) J1(x) - 1 / x), so NaN below zero; -inf at zero.
    """
    singular = op.Sub(op.Mul(j1_near(op, x), op.Log(x)), op.Reciprocal(x))
    near = op.Add(op.Mul(rational(op, op.Mul(x, x), _Y1), x), op.Mul(singular, 2 / math.pi))
    near = op.Where(op.Equal(x, 0), -math.inf, near)
    return op.Where(op.LessOrEqual(x, 5), near, y_wave(op, x, ORDER_1))
