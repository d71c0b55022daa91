"""The Airy function Ai, computed in float64.

Cephes' airy.c as in ATen/native/Math.h, which leaves out the leading 1 that some of its denominators have.
"""

from __future__ import annotations

import itertools
import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.polynomial import polynomial, rational
from dort_compare.lowering.precision import in_float64
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten

_ABOVE = (
    (
        3.46538101525629032477e-01,
        1.20075952739645805542e01,
        7.62796053615234516538e01,
        1.68089224934630576269e02,
        1.59756391350164413639e02,
        7.05360906840444183113e01,
        1.40264691163389668864e01,
        9.99999999999999995305e-01,
    ),
    (
        5.67594532638770212846e-01,
        1.47562562584847203173e01,
        8.45138970141474626562e01,
        1.77318088145400459522e02,
        1.64234692871529701831e02,
        7.14778400825575695274e01,
        1.40959135607834029598e01,
        1.00000000000000000470e00,
    ),
)
_SINE = (
    (
        -1.31696323418331795333e-01,
        -6.26456544431912369773e-01,
        -6.93158036036933542233e-01,
        -2.79779981545119124951e-01,
        -4.91900132609500318020e-02,
        -4.06265923594885404393e-03,
        -1.59276496239262096340e-04,
        -2.77649108155232920844e-06,
        -1.67787698489114633780e-08,
    ),
    (
        1.33560420706553243746e01,
        3.26825032795224613948e01,
        2.67367040941499554804e01,
        9.18707402907259625840e00,
        1.47529146771666414581e00,
        1.15687173795188044134e-01,
        4.40291641615211203805e-03,
        7.54720348287414296618e-05,
        4.51850092970580378464e-07,
    ),
)
_COSINE = (
    (
        1.97339932091685679179e-02,
        3.91103029615688277255e-01,
        1.06579897599595591108e00,
        9.39169229816650230044e-01,
        3.51465656105547619242e-01,
        6.33888919628925490927e-02,
        5.85804113048388458567e-03,
        2.82851600836737019778e-04,
        6.98793669997260967291e-06,
        8.11789239554389293311e-08,
        3.41551784765923618484e-10,
    ),
    (
        9.30892908077441974853e00,
        1.98352928718312140417e01,
        1.55646628932864612953e01,
        5.47686069422975497931e00,
        9.54293611618961883998e-01,
        8.64580826352392193095e-02,
        4.12656523824222607191e-03,
        1.01259085116509135510e-04,
        1.17166733214413521882e-06,
        4.91834570062930015649e-09,
    ),
)
_AT_ZERO = 0.355028053887817239260
_SLOPE_AT_ZERO = -0.258819403792806798405
_TERMS = 16
"""Of the series at zero, up to 2.09; the last is beyond the digits of float64."""


@lowering(aten.special_airy_ai.default)
@in_float64
def airy_ai(op: Builder, x: ir.Value) -> ir.Value:
    """special_airy_ai(Tensor x) -> Tensor

    The power series from -2.09 to 2.09, a damped exponential above, a wave below; NaN at infinity, 0 from 103.892 on.
    """
    size = op.Abs(x)
    zeta = op.Mul(op.Mul(size, op.Sqrt(size)), 2 / 3)
    scale = op.Div(1 / math.sqrt(math.pi), op.Sqrt(op.Sqrt(size)))
    value = op.Where(op.GreaterOrEqual(x, 2.09), op.Mul(scale, _above(op, zeta)), _near(op, x))
    value = op.Where(op.Less(x, -2.09), op.Mul(scale, _below(op, zeta)), value)
    value = op.Where(op.Greater(x, 103.892), 0, value)
    return op.Where(op.IsInf(x), math.nan, value)


def _near(op: Builder, x: ir.Value) -> ir.Value:
    """Ai(0) (1 + x^3 / (2 3) + x^6 / (2 3 5 6) + ...) + Ai'(0) (x + x^4 / (3 4) + x^7 / (3 4 6 7) + ...)"""
    cube = op.Mul(op.Mul(x, x), x)
    even, odd = _series(2), _series(3)
    at_zero = op.Mul(polynomial(op, cube, even), _AT_ZERO)
    return op.Add(at_zero, op.Mul(op.Mul(polynomial(op, cube, odd), x), _SLOPE_AT_ZERO))


def _series(first: int) -> list[float]:
    """1 / ((first) (first + 1) (first + 3) (first + 4) ... ), the highest power first."""
    factors = (1 / ((first + 3 * k) * (first + 1 + 3 * k)) for k in range(_TERMS))
    return list(itertools.accumulate(factors, float.__mul__, initial=1.0))[::-1]


def _above(op: Builder, zeta: ir.Value) -> ir.Value:
    inverse = op.Reciprocal(zeta)
    ratio = rational(op, inverse, _ABOVE)
    return op.Div(ratio, op.Mul(op.Exp(zeta), 2))


def _below(op: Builder, zeta: ir.Value) -> ir.Value:
    inverse = op.Reciprocal(zeta)
    square = op.Mul(inverse, inverse)
    sine = op.Mul(square, rational(op, square, _SINE))
    cosine = op.Mul(inverse, rational(op, square, _COSINE))
    angle = op.Add(zeta, math.pi / 4)
    return op.Sub(op.Mul(op.Sin(angle), op.Add(sine, 1)), op.Mul(op.Cos(angle), cosine))
