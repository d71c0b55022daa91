"""Elementary functions of complex numbers in those of real: what they make of the parts a and b of a + bi."""

from __future__ import annotations

import cmath
import math
from typing import Any

import torch
from torch import fx

from dort_compare.backends.complex_arithmetic import (
    Parts,
    Write,
    add,
    angle,
    as_parts,
    conj,
    magnitude,
    minus,
    mul,
    neg,
    plus,
    reciprocal,
    sub,
    times,
)

aten = torch.ops.aten


def polar(write: Write, size: fx.Node, turned: fx.Node) -> Parts:
    """size (cos t + i sin t)"""
    return Parts(*(write(aten.mul.Tensor, size, write(each, turned)) for each in (aten.cos.default, aten.sin.default)))


def exp(write: Write, x: Parts) -> Parts:
    """exp a (cos b + i sin b)"""
    return polar(write, write(aten.exp.default, x.real), x.imag)


def log(write: Write, x: Parts) -> Parts:
    """log |x| + i arg x; for the larger of |a| and |b| about 1, log |x| is log1p((|a| - 1) (|a| + 1) + b^2) / 2."""
    sizes = [write(aten.abs.default, part) for part in x]
    larger, smaller = (write(each, *sizes) for each in (aten.maximum.default, aten.minimum.default))
    gap = times(write, minus(write, larger, 1), plus(write, larger, 1))
    near = times(write, write(aten.log1p.default, plus(write, gap, times(write, smaller, smaller))), 0.5)
    is_near = write(aten.logical_and.default, write(aten.gt.Scalar, larger, 0.5), write(aten.lt.Scalar, larger, 2))
    far = write(aten.log.default, magnitude(write, x))
    return Parts(write(aten.where.self, is_near, near, far), angle(write, x))


def log2(write: Write, x: Parts) -> Parts:
    """log x / log 2"""
    return _stretched(write, log(write, x), 1 / math.log(2))


def log10(write: Write, x: Parts) -> Parts:
    """log x / log 10"""
    return _stretched(write, log(write, x), 1 / math.log(10))


def sqrt(write: Write, x: Parts) -> Parts:
    """The root with a real part of 0 or more: with t = sqrt((|a| + |x|) / 2), of which t^2 adds what cancels nowhere,
    it is t + i b / 2t, or where a < 0, |b| / 2t + i t with the sign of b.
    """
    sizes = (times(write, each, 0.5) for each in (write(aten.abs.default, x.real), magnitude(write, x)))
    larger = write(aten.sqrt.default, plus(write, *sizes))
    other = write(aten.div.Tensor, x.imag, times(write, larger, 2))
    smaller = write(aten.where.self, write(aten.eq.Scalar, larger, 0), x.imag, other)
    turned = write(aten.abs.default, smaller), write(aten.copysign.Tensor, larger, x.imag)
    is_left = write(aten.lt.Scalar, x.real, 0)
    pairs = zip(turned, (larger, smaller), strict=True)
    return Parts(*(write(aten.where.self, is_left, *pair) for pair in pairs))


def rsqrt(write: Write, x: Parts) -> Parts:
    """1 / sqrt x"""
    return reciprocal(write, sqrt(write, x))


def power(write: Write, x: Parts, exponent: Any) -> Parts:
    """x^y of a number y: exp(y log x), but for roots and small powers, as in torch."""
    if exponent in _POWERS:
        return _POWERS[exponent](write, x)
    return exp(write, _stretched(write, log(write, x), exponent))


def power_of_number(write: Write, base: Any, exponent: Parts) -> Parts:
    """exp(x log y) of a number y"""
    if base == 0:
        raise NotImplementedError("a power of 0")
    factor = cmath.log(base)
    return exp(write, _stretched(write, exponent, factor if factor.imag else factor.real))


def exp2(write: Write, x: Parts) -> Parts:
    """2^x"""
    return polar(write, write(aten.exp2.default, x.real), times(write, x.imag, math.log(2)))


def sin(write: Write, x: Parts) -> Parts:
    """sin a cosh b + i cos a sinh b"""
    return _each_way(write, x, (aten.sin.default, aten.cosh.default), (aten.cos.default, aten.sinh.default))


def cos(write: Write, x: Parts) -> Parts:
    """cos a cosh b - i sin a sinh b"""
    found = _each_way(write, x, (aten.cos.default, aten.cosh.default), (aten.sin.default, aten.sinh.default))
    return conj(write, found)


def sinh(write: Write, x: Parts) -> Parts:
    """sinh a cos b + i cosh a sin b"""
    return _each_way(write, x, (aten.sinh.default, aten.cos.default), (aten.cosh.default, aten.sin.default))


def cosh(write: Write, x: Parts) -> Parts:
    """cosh a cos b + i sinh a sin b"""
    return _each_way(write, x, (aten.cosh.default, aten.cos.default), (aten.sinh.default, aten.sin.default))


def _each_way(write: Write, x: Parts, *functions: tuple[Any, Any]) -> Parts:
    """The products of a function of a and one of b."""
    return Parts(*(write(aten.mul.Tensor, write(f, x.real), write(g, x.imag)) for f, g in functions))


def tanh(write: Write, x: Parts) -> Parts:
    """(sinh 2a + i sin 2b) / (cosh 2a + cos 2b), with both sides times 2 e for e = exp(-2|a|), which keeps them in
    range, and so that nothing cancels: (sign(a) (1 - e^2) + 4 i e sin b cos b) / ((1 - e)^2 + 4 e cos^2 b).
    """
    doubled = times(write, write(aten.abs.default, x.real), -2)
    decay = times(write, write(aten.exp.default, doubled), 4)
    sine, cosine = (write(each, x.imag) for each in (aten.sin.default, aten.cos.default))
    gap = write(aten.expm1.default, doubled)
    divisor = plus(write, times(write, gap, gap), times(write, decay, times(write, cosine, cosine)))
    left = write(aten.neg.default, write(aten.expm1.default, times(write, doubled, 2)))
    parts = write(aten.copysign.Tensor, left, x.real), times(write, decay, times(write, sine, cosine))
    return Parts(*(write(aten.div.Tensor, part, divisor) for part in parts))


def tan(write: Write, x: Parts) -> Parts:
    """-i tanh ix"""
    found = tanh(write, Parts(write(aten.neg.default, x.imag), x.real))
    return Parts(found.imag, write(aten.neg.default, found.real))


def tanh_backward(write: Write, grad: Any, result: Parts) -> Parts:
    """grad times the conjugate of 1 - y^2"""
    return mul(write, grad, conj(write, sub(write, 1, mul(write, result, result))))


def sigmoid(write: Write, x: Parts) -> Parts:
    """1 / (1 + exp(-x))"""
    return reciprocal(write, add(write, exp(write, neg(write, x)), 1))


def sigmoid_backward(write: Write, grad: Any, result: Parts) -> Parts:
    """grad times the conjugate of y (1 - y)"""
    return mul(write, grad, conj(write, mul(write, result, sub(write, 1, result))))


def _stretched(write: Write, x: Parts, factor: Any) -> Parts:
    """x times a number, of which a real one makes no NaN of what is infinite, as the logarithm of 0."""
    if isinstance(factor, complex):
        return mul(write, x, factor)
    return Parts(*(times(write, part, factor) for part in x))


def _square(write: Write, x: Parts) -> Parts:
    return mul(write, x, x)


def _cube(write: Write, x: Parts) -> Parts:
    return mul(write, _square(write, x), x)


def _one(write: Write, x: Parts) -> Parts:
    return as_parts(write, write(aten.ones_like.default, x.real))


_POWERS: dict[Any, Any] = {
    0: _one,
    1: lambda _, x: x,
    2: _square,
    3: _cube,
    -1: reciprocal,
    -2: lambda write, x: reciprocal(write, _square(write, x)),
    0.5: sqrt,
    -0.5: rsqrt,
}
