"""The error function and those that follow from it: erfc, erfcx, their inverses, the normal distribution's.

Rational approximations of Cephes' ndtr.c and ndtri.c, as in torch's own kernels. Everything but erf in float32, for
which ONNX has an operator, is computed in float64, so that a float32 result is rounded once.
"""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.elementary import elementary
from dort_compare.lowering.ops.logarithm import log1p
from dort_compare.lowering.ops.polynomial import polynomial
from dort_compare.lowering.ops.signs import with_sign
from dort_compare.lowering.precision import in_float64
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import dtype_of

aten = torch.ops.aten
prims = torch.ops.prims

_ERF_T = (
    9.60497373987051638749e0,
    9.00260197203842689217e1,
    2.23200534594684319226e3,
    7.00332514112805075473e3,
    5.55923013010394962768e4,
)
_ERF_U = (
    1.0,
    3.35617141647503099647e1,
    5.21357949780152679795e2,
    4.59432382970980127987e3,
    2.26290000613890934246e4,
    4.92673942608635921086e4,
)
_ERFC_P = (
    2.46196981473530512524e-10,
    5.64189564831068821977e-1,
    7.46321056442269912687e0,
    4.86371970985681366614e1,
    1.96520832956077098242e2,
    5.26445194995477358631e2,
    9.34528527171957607540e2,
    1.02755188689515710272e3,
    5.57535335369399327526e2,
)
_ERFC_Q = (
    1.0,
    1.32281951154744992508e1,
    8.67072140885989742329e1,
    3.54937778887819891062e2,
    9.75708501743205489753e2,
    1.82390916687909736289e3,
    2.24633760818710981792e3,
    1.65666309194161350182e3,
    5.57535340817727675546e2,
)
_ERFC_R = (
    5.64189583547755073984e-1,
    1.27536670759978104416e0,
    5.01905042251180477414e0,
    6.16021097993053585195e0,
    7.40974269950448939160e0,
    2.97886665372100240670e0,
)
_ERFC_S = (
    1.0,
    2.26052863220117276590e0,
    9.39603524938001434673e0,
    1.20489539808096656605e1,
    1.70814450747565897222e1,
    9.60896809063285878198e0,
    3.36907645100081516050e0,
)
_NDTRI_P0 = (
    -5.99633501014107895267e1,
    9.80010754185999661536e1,
    -5.66762857469070293439e1,
    1.39312609387279679503e1,
    -1.23916583867381258016e0,
)
_NDTRI_Q0 = (
    1.00000000000000000000e0,
    1.95448858338141759834e0,
    4.67627912898881538453e0,
    8.63602421390890590575e1,
    -2.25462687854119370527e2,
    2.00260212380060660359e2,
    -8.20372256168333339912e1,
    1.59056225126211695515e1,
    -1.18331621121330003142e0,
)
_NDTRI_P1 = (
    4.05544892305962419923e0,
    3.15251094599893866154e1,
    5.71628192246421288162e1,
    4.40805073893200834700e1,
    1.46849561928858024014e1,
    2.18663306850790267539e0,
    -1.40256079171354495875e-1,
    -3.50424626827848203418e-2,
    -8.57456785154685413611e-4,
)
_NDTRI_Q1 = (
    1.00000000000000000000e0,
    1.57799883256466749731e1,
    4.53907635128879210584e1,
    4.13172038254672030440e1,
    1.50425385692907503408e1,
    2.50464946208309415979e0,
    -1.42182922854787788574e-1,
    -3.80806407691578277194e-2,
    -9.33259480895457427372e-4,
)
_NDTRI_P2 = (
    3.23774891776946035970e0,
    6.91522889068984211695e0,
    3.93881025292474443415e0,
    1.33303460815807542389e0,
    2.01485389549179081538e-1,
    1.23716634817820021358e-2,
    3.01581553508235416007e-4,
    2.65806974686737550832e-6,
    6.23974539184983293730e-9,
)
_NDTRI_Q2 = (
    1.00000000000000000000e0,
    6.02427039364742014255e0,
    3.67983563856160859403e0,
    1.37702099489081330271e0,
    2.16236993594496635890e-1,
    1.34204006088543189037e-2,
    3.28014464682127739104e-4,
    2.89247864745380683936e-6,
    6.79019408009981274425e-9,
)


@elementary(aten.erf.default, prims.erf.default)
def erf(op: Builder, x: ir.Value) -> ir.Value:
    """erf(Tensor self) -> Tensor"""
    if dtype_of(x) == torch.float32:
        return op.Erf(x)
    size = op.Abs(x)
    outer = op.Sub(1, _positive_erfc(op, size))
    return with_sign(op, op.Where(op.Less(size, 1), _central_erf(op, size), outer), x)


@lowering(aten.erfc.default, prims.erfc.default)
@in_float64
def erfc(op: Builder, x: ir.Value) -> ir.Value:
    """erfc(Tensor self) -> Tensor"""
    return erfc_in_float64(op, x)


def erfc_in_float64(op: Builder, x: ir.Value) -> ir.Value:
    """1 - erf(x)"""
    size = op.Abs(x)
    tail = _positive_erfc(op, size)
    outer = op.Where(op.Less(x, 0), op.Sub(2, tail), tail)
    return op.Where(op.Less(size, 1), op.Sub(1, _central_erf(op, x)), outer)


@lowering(aten.special_erfcx.default, prims.erfcx.default)
@in_float64
def erfcx(op: Builder, x: ir.Value) -> ir.Value:
    """special_erfcx(Tensor self) -> Tensor

    exp(x^2) erfc(x)
    """
    return _erfcx(op, x)


def _erfcx(op: Builder, x: ir.Value) -> ir.Value:
    return op.Where(op.Less(x, 1), op.Mul(op.Exp(op.Mul(x, x)), erfc_in_float64(op, x)), _scaled_tail(op, x))


def _central_erf(op: Builder, x: ir.Value) -> ir.Value:
    """erf(x) for |x| up to 1."""
    square = op.Mul(x, x)
    return op.Mul(x, op.Div(polynomial(op, square, _ERF_T), polynomial(op, square, _ERF_U)))


def _scaled_tail(op: Builder, x: ir.Value) -> ir.Value:
    """erfcx(x) for x from 1 on; at 10^8 it is 1 / (x sqrt(pi)) to the last place."""
    near, far = op.Min(x, 8.0), op.Min(x, 1e8)
    by_near = op.Div(polynomial(op, near, _ERFC_P), polynomial(op, near, _ERFC_Q))
    by_far = op.Div(polynomial(op, far, _ERFC_R), polynomial(op, far, _ERFC_S))
    by_far = op.Where(op.Less(x, 1e8), by_far, op.Div(1 / math.sqrt(math.pi), x))
    return op.Where(op.Less(x, 8), by_near, by_far)


def _positive_erfc(op: Builder, x: ir.Value) -> ir.Value:
    """erfc(x) for x from 1 on."""
    return op.Mul(_exp_of_minus_square(op, x), _scaled_tail(op, x))


def _exp_of_minus_square(op: Builder, x: ir.Value) -> ir.Value:
    """exp(-x^2) for positive x: with m the multiple of 1/128 next to x, whose square is exact, and f the rest,
    exp(-m^2) exp(-(2 m + f) f)."""
    x = op.Min(x, 40.0)
    near = op.Div(op.Floor(op.Add(op.Mul(x, 128.0), 0.5)), 128.0)
    rest = op.Sub(x, near)
    correction = op.Mul(op.Add(op.Mul(near, 2.0), rest), rest)
    return op.Mul(op.Exp(op.Neg(op.Mul(near, near))), op.Exp(op.Neg(correction)))


@lowering(aten.special_log_ndtr.default)
@in_float64
def log_ndtr(op: Builder, x: ir.Value) -> ir.Value:
    """special_log_ndtr(Tensor self) -> Tensor

    The logarithm of the normal distribution function; below -1 log(erfcx(-t) / 2) - t^2 with t = x / sqrt(2).
    """
    t = op.Mul(x, math.sqrt(0.5))
    low = op.Sub(op.Log(op.Mul(_erfcx(op, op.Neg(t)), 0.5)), op.Mul(t, t))
    return op.Where(op.Less(x, -1), low, log1p(op, op.Mul(erfc_in_float64(op, t), -0.5)))


@lowering(aten.erfinv.default, prims.erf_inv.default)
@in_float64
def erfinv(op: Builder, x: ir.Value) -> ir.Value:
    """erfinv(Tensor self) -> Tensor

    The normal quantile of (1 + x) / 2, by sqrt(2); x enters as it is, so that nothing is lost near zero.
    """
    size = op.Abs(x)
    quantile = _quantile(op, op.Mul(x, 0.5), op.Mul(op.Sub(1, size), 0.5))
    return op.Mul(quantile, math.sqrt(0.5))


@lowering(aten.special_ndtri.default, prims.ndtri.default)
@in_float64
def ndtri(op: Builder, x: ir.Value) -> ir.Value:
    """special_ndtri(Tensor self) -> Tensor

    The quantile of the normal distribution.
    """
    return _quantile(op, op.Sub(x, 0.5), op.Where(op.Less(x, 0.5), x, op.Sub(1, x)))


def _quantile(op: Builder, offset: ir.Value, tail: ir.Value) -> ir.Value:
    """The normal quantile of 1/2 + ``offset``, where ``tail`` is the probability 1/2 - |offset|."""
    size = op.Abs(offset)
    square = op.Mul(size, size)
    ratio = op.Div(op.Mul(square, polynomial(op, square, _NDTRI_P0)), polynomial(op, square, _NDTRI_Q0))
    central = op.Mul(op.Add(size, op.Mul(size, ratio)), math.sqrt(2 * math.pi))
    outer = op.Where(op.Equal(tail, 0), math.inf, _tail_quantile(op, tail))
    return with_sign(op, op.Where(op.Greater(tail, math.exp(-2)), central, outer), offset)


def _tail_quantile(op: Builder, tail: ir.Value) -> ir.Value:
    """Minus the normal quantile of a probability up to exp(-2)."""
    x = op.Sqrt(op.Mul(op.Log(tail), -2.0))
    z = op.Reciprocal(x)
    by_near = op.Div(polynomial(op, z, _NDTRI_P1), polynomial(op, z, _NDTRI_Q1))
    by_far = op.Div(polynomial(op, z, _NDTRI_P2), polynomial(op, z, _NDTRI_Q2))
    correction = op.Mul(z, op.Where(op.Less(x, 8), by_near, by_far))
    return op.Sub(op.Sub(x, op.Div(op.Log(x), x)), correction)
