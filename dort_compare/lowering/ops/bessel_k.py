"""The modified Bessel functions of the second kind, K0 and K1, and those scaled by exp(x); computed in float64.

Chebyshev series of Cephes' k0.c and k1.c on [0, 2] and beyond, as in ATen/native/Math.h.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.bessel import scaled_i0, scaled_i1
from dort_compare.lowering.ops.polynomial import chebyshev
from dort_compare.lowering.precision import in_float64
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten

_K0_NEAR = (
    1.37446543561352307156e-16,
    4.25981614279661018399e-14,
    1.03496952576338420167e-11,
    1.90451637722020886025e-09,
    2.53479107902614945675e-07,
    2.28621210311945178607e-05,
    1.26461541144692592338e-03,
    3.59799365153615016266e-02,
    3.44289899924628486886e-01,
    -5.35327393233902768720e-01,
)
_K0_FAR = (
    5.30043377268626276149e-18,
    -1.64758043015242134646e-17,
    5.21039150503902756861e-17,
    -1.67823109680541210385e-16,
    5.51205597852431940784e-16,
    -1.84859337734377901440e-15,
    6.34007647740507060557e-15,
    -2.22751332699166985548e-14,
    8.03289077536357521100e-14,
    -2.98009692317273043925e-13,
    1.14034058820847496303e-12,
    -4.51459788337394416547e-12,
    1.85594911495471785253e-11,
    -7.95748924447710747776e-11,
    3.57739728140030116597e-10,
    -1.69753450938905987466e-09,
    8.57403401741422608519e-09,
    -4.66048989768794782956e-08,
    2.76681363944501510342e-07,
    -1.83175552271911948767e-06,
    1.39498137188764993662e-05,
    -1.28495495816278026384e-04,
    1.56988388573005337491e-03,
    -3.14481013119645005427e-02,
    2.44030308206595545468e00,
)
_K1_NEAR = (
    -7.02386347938628759343e-18,
    -2.42744985051936593393e-15,
    -6.66690169419932900609e-13,
    -1.41148839263352776110e-10,
    -2.21338763073472585583e-08,
    -2.43340614156596823496e-06,
    -1.73028895751305206302e-04,
    -6.97572385963986435018e-03,
    -1.22611180822657148235e-01,
    -3.53155960776544875667e-01,
    1.52530022733894777053e00,
)
_K1_FAR = (
    -5.75674448366501715755e-18,
    1.79405087314755922667e-17,
    -5.68946255844285935196e-17,
    1.83809354436663880070e-16,
    -6.05704724837331885336e-16,
    2.03870316562433424052e-15,
    -7.01983709041831346144e-15,
    2.47715442448130437068e-14,
    -8.97670518232499435011e-14,
    3.34841966607842919884e-13,
    -1.28917396095102890680e-12,
    5.13963967348173025100e-12,
    -2.12996783842756842877e-11,
    9.21831518760500529508e-11,
    -4.19035475934189648750e-10,
    2.01504975519703286596e-09,
    -1.03457624656780970260e-08,
    5.74108412545004946722e-08,
    -3.50196060308781257119e-07,
    2.40648494783721712015e-06,
    -1.93619797416608296024e-05,
    1.95215518471351631108e-04,
    -2.85781685962277938680e-03,
    1.03923736576817238437e-01,
    2.72062619048444266945e00,
)


@lowering(aten.special_modified_bessel_k0.default)
@in_float64
def k0(op: Builder, x: ir.Value) -> ir.Value:
    """special_modified_bessel_k0(Tensor self) -> Tensor"""
    return op.Where(op.LessOrEqual(x, 2), _k0_near(op, x), op.Mul(op.Exp(op.Neg(x)), _far(op, x, _K0_FAR)))


@lowering(aten.special_scaled_modified_bessel_k0.default)
@in_float64
def scaled_k0(op: Builder, x: ir.Value) -> ir.Value:
    """special_scaled_modified_bessel_k0(Tensor x) -> Tensor

    exp(x) K0(x)
    """
    return op.Where(op.LessOrEqual(x, 2), op.Mul(op.Exp(x), _k0_near(op, x)), _far(op, x, _K0_FAR))


@lowering(aten.special_modified_bessel_k1.default)
@in_float64
def k1(op: Builder, x: ir.Value) -> ir.Value:
    """special_modified_bessel_k1(Tensor self) -> Tensor"""
    return op.Where(op.LessOrEqual(x, 2), _k1_near(op, x), op.Mul(op.Exp(op.Neg(x)), _far(op, x, _K1_FAR)))


@lowering(aten.special_scaled_modified_bessel_k1.default)
@in_float64
def scaled_k1(op: Builder, x: ir.Value) -> ir.Value:
    """special_scaled_modified_bessel_k1(Tensor x) -> Tensor

    exp(x) K1(x)
    """
    return op.Where(op.LessOrEqual(x, 2), op.Mul(op.Exp(x), _k1_near(op, x)), _far(op, x, _K1_FAR))


def _k0_near(op: Builder, x: ir.Value) -> ir.Value:
    """A series in x^2 - log(x / 2) I0(x): infinite at zero, NaN below."""
    i0 = op.Mul(op.Exp(x), scaled_i0(op, x))
    return op.Sub(_series_near(op, x, _K0_NEAR), op.Mul(op.Log(op.Mul(x, 0.5)), i0))


def _k1_near(op: Builder, x: ir.Value) -> ir.Value:
    """A series in x^2 / x + log(x / 2) I1(x): infinite at zero, NaN below."""
    i1 = op.Mul(op.Exp(x), scaled_i1(op, x))
    value = op.Add(op.Mul(op.Log(op.Mul(x, 0.5)), i1), op.Div(_series_near(op, x, _K1_NEAR), x))
    return op.Where(op.Equal(x, 0), math.inf, value)


def _series_near(op: Builder, x: ir.Value, series: tuple[float, ...]) -> ir.Value:
    return chebyshev(op, op.Sub(op.Mul(x, x), 2), series)


def _far(op: Builder, x: ir.Value, series: tuple[float, ...]) -> ir.Value:
    """exp(x) K(x) beyond 2."""
    return op.Div(chebyshev(op, op.Sub(op.Div(8, x), 2), series), op.Sqrt(x))
