"""The modified Bessel functions of the first kind, I0 and I1, and those scaled by exp(-|x|).

Chebyshev series of Cephes' i0.c and i1.c on [0, 8] and beyond, as in torch's own kernels; computed in float64.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.polynomial import chebyshev
from dort_compare.lowering.precision import in_float64, opmath
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten
prims = torch.ops.prims

_I0_NEAR = (
    -4.41534164647933937950e-18,
    3.33079451882223809783e-17,
    -2.43127984654795469359e-16,
    1.71539128555513303061e-15,
    -1.16853328779934516808e-14,
    7.67618549860493561688e-14,
    -4.85644678311192946090e-13,
    2.95505266312963983461e-12,
    -1.72682629144155570723e-11,
    9.67580903537323691224e-11,
    -5.18979560163526290666e-10,
    2.65982372468238665035e-9,
    -1.30002500998624804212e-8,
    6.04699502254191894932e-8,
    -2.67079385394061173391e-7,
    1.11738753912010371815e-6,
    -4.41673835845875056359e-6,
    1.64484480707288970893e-5,
    -5.75419501008210370398e-5,
    1.88502885095841655729e-4,
    -5.76375574538582365885e-4,
    1.63947561694133579842e-3,
    -4.32430999505057594430e-3,
    1.05464603945949983183e-2,
    -2.37374148058994688156e-2,
    4.93052842396707084878e-2,
    -9.49010970480476444210e-2,
    1.71620901522208775349e-1,
    -3.04682672343198398683e-1,
    6.76795274409476084995e-1,
)
_I0_FAR = (
    -7.23318048787475395456e-18,
    -4.83050448594418207126e-18,
    4.46562142029675999901e-17,
    3.46122286769746109310e-17,
    -2.82762398051658348494e-16,
    -3.42548561967721913462e-16,
    1.77256013305652638360e-15,
    3.81168066935262242075e-15,
    -9.55484669882830764870e-15,
    -4.15056934728722208663e-14,
    1.54008621752140982691e-14,
    3.85277838274214270114e-13,
    7.18012445138366623367e-13,
    -1.79417853150680611778e-12,
    -1.32158118404477131188e-11,
    -3.14991652796324136454e-11,
    1.18891471078464383424e-11,
    4.94060238822496958910e-10,
    3.39623202570838634515e-9,
    2.26666899049817806459e-8,
    2.04891858946906374183e-7,
    2.89137052083475648297e-6,
    6.88975834691682398426e-5,
    3.36911647825569408990e-3,
    8.04490411014108831608e-1,
)
_I1_NEAR = (
    2.77791411276104639959e-18,
    -2.11142121435816608115e-17,
    1.55363195773620046921e-16,
    -1.10559694773538630805e-15,
    7.60068429473540693410e-15,
    -5.04218550472791168711e-14,
    3.22379336594557470981e-13,
    -1.98397439776494371520e-12,
    1.17361862988909016308e-11,
    -6.66348972350202774223e-11,
    3.62559028155211703701e-10,
    -1.88724975172282928790e-9,
    9.38153738649577178388e-9,
    -4.44505912879632808065e-8,
    2.00329475355213526229e-7,
    -8.56872026469545474066e-7,
    3.47025130813767847674e-6,
    -1.32731636560394358279e-5,
    4.78156510755005422638e-5,
    -1.61760815825896745588e-4,
    5.12285956168575772895e-4,
    -1.51357245063125314899e-3,
    4.15642294431288815669e-3,
    -1.05640848946261981558e-2,
    2.47264490306265168283e-2,
    -5.29459812080949914269e-2,
    1.02643658689847095384e-1,
    -1.76416518357834055153e-1,
    2.52587186443633654823e-1,
)
_I1_FAR = (
    7.51729631084210481353e-18,
    4.41434832307170791151e-18,
    -4.65030536848935832153e-17,
    -3.20952592199342395980e-17,
    2.96262899764595013876e-16,
    3.30820231092092828324e-16,
    -1.88035477551078244854e-15,
    -3.81440307243700780478e-15,
    1.04202769841288027642e-14,
    4.27244001671195135429e-14,
    -2.10154184277266431302e-14,
    -4.08355111109219731823e-13,
    -7.19855177624590851209e-13,
    2.03562854414708950722e-12,
    1.41258074366137813316e-11,
    3.25260358301548823856e-11,
    -1.89749581235054123450e-11,
    -5.58974346219658380687e-10,
    -3.83538038596423702205e-9,
    -2.63146884688951950684e-8,
    -2.51223623787020892529e-7,
    -3.88256480887769039346e-6,
    -1.10588938762623716291e-4,
    -9.76109749136146840777e-3,
    7.78576235018280120474e-1,
)


@lowering(aten.special_i0e.default, prims.bessel_i0e.default)
@in_float64
def i0e(op: Builder, x: ir.Value) -> ir.Value:
    """special_i0e(Tensor self) -> Tensor

    exp(-|x|) I0(x)
    """
    return scaled_i0(op, op.Abs(x))


@lowering(aten.i0.default, prims.bessel_i0.default, aten.special_modified_bessel_i0.default)
@in_float64
def i0(op: Builder, x: ir.Value) -> ir.Value:
    """i0(Tensor self) -> Tensor"""
    size = op.Abs(x)
    return op.Mul(_growth(op, size), scaled_i0(op, size))


def scaled_i0(op: Builder, size: ir.Value) -> ir.Value:
    """exp(-x) I0(x) from zero on."""
    near, far = _series(op, size, _I0_NEAR, _I0_FAR)
    return op.Where(op.LessOrEqual(size, 8), near, far)


@lowering(aten.special_i1e.default, prims.bessel_i1e.default)
@in_float64
def i1e(op: Builder, x: ir.Value) -> ir.Value:
    """special_i1e(Tensor self) -> Tensor

    exp(-|x|) I1(x)
    """
    return op.Mul(op.Sign(x), scaled_i1(op, op.Abs(x)))


@lowering(aten.special_i1.default, prims.bessel_i1.default, aten.special_modified_bessel_i1.default)
@in_float64
def i1(op: Builder, x: ir.Value) -> ir.Value:
    """special_i1(Tensor self) -> Tensor"""
    size = op.Abs(x)
    return op.Mul(op.Sign(x), op.Mul(_growth(op, size), scaled_i1(op, size)))


def scaled_i1(op: Builder, size: ir.Value) -> ir.Value:
    """exp(-x) I1(x) from zero on."""
    near, far = _series(op, size, _I1_NEAR, _I1_FAR)
    return op.Where(op.LessOrEqual(size, 8), op.Mul(near, size), far)


def _growth(op: Builder, size: ir.Value) -> ir.Value:
    """exp(size), infinite already where torch's, in the dtype that it computes in, is."""
    limit = math.log(torch.finfo(opmath(op.result.dtype)).max)
    return op.Where(op.Greater(size, limit), math.inf, op.Exp(size))


def _series(op: Builder, size: ir.Value, near: tuple[float, ...], far: tuple[float, ...]) -> tuple[ir.Value, ir.Value]:
    """The series on [0, 8], and the one beyond, divided by sqrt(x)."""
    on_near = chebyshev(op, op.Sub(op.Mul(size, 0.5), 2.0), near)
    on_far = chebyshev(op, op.Sub(op.Div(32.0, size), 2.0), far)
    return on_near, op.Div(on_far, op.Sqrt(size))
