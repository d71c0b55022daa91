"""Complex arithmetic in real: what it makes of the real and imaginary parts of its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import fx

aten = torch.ops.aten

Write = Callable[..., fx.Node]
"""``write(target, *args, **options)`` adds a call to a graph."""


class Parts(NamedTuple):
    """The real and imaginary parts of a complex tensor: nodes of a graph, or numbers."""

    real: Any
    imag: Any


def parts_of(value: Any) -> Parts | None:
    """The parts of a complex operand; None of a real one."""
    if isinstance(value, complex):
        return Parts(value.real, value.imag)
    return value if isinstance(value, Parts) else None


def number(value: Any) -> Parts:
    """The parts of an operand, of which a real one has 0 for the second."""
    return parts_of(value) or Parts(value, 0)


def as_parts(write: Write, value: Any) -> Parts:
    """The parts of an operand, of which a real tensor has zeros for the second."""
    return parts_of(value) or Parts(value, write(aten.zeros_like.default, value))


def are_alike(x: fx.Node, other: fx.Node) -> bool:
    """Whether two tensors are of one shape. Comparing symbolic sizes themselves would add guards."""
    ours, theirs = ([*map(str, each.meta["val"].shape)] for each in (x, other))
    return ours == theirs


# Of real operands, of which at most one is a number, but for products.


def times(write: Write, x: Any, other: Any) -> Any:
    """x y"""
    if isinstance(x, fx.Node):
        return write(aten.mul.Tensor, x, other)
    return write(aten.mul.Tensor, other, x) if isinstance(other, fx.Node) else x * other


def plus(write: Write, x: Any, other: Any) -> Any:
    """x + y. -0 + 0 is 0, but ONNX Runtime takes sums with 0 out of a graph: x + 0 is 0 - -x."""
    if not isinstance(x, fx.Node):
        x, other = other, x
    if not isinstance(other, fx.Node) and other == 0:
        return minus(write, other, write(aten.neg.default, x))
    return write(aten.add.Tensor, x, other)


def minus(write: Write, x: Any, other: Any) -> Any:
    """x - y"""
    return write(aten.sub.Tensor, x, other) if isinstance(x, fx.Node) else write(aten.rsub.Scalar, other, x)


# Of operands one of which at least is complex.


def scaled(write: Write, x: Any, factor: Any) -> Any:
    """An operand times a factor, numbers or tensors of any kind."""
    if isinstance(factor, (int, float)) and factor == 1:
        return x
    if not isinstance(x, (Parts, fx.Node)):
        return factor * x
    return times(write, x, factor) if not (parts_of(x) or parts_of(factor)) else mul(write, x, factor)


def add(write: Write, x: Any, other: Any, *, alpha: Any = 1) -> Parts:
    """x + alpha y"""
    return _sum(write, x, scaled(write, other, alpha), plus)


def sub(write: Write, x: Any, other: Any, *, alpha: Any = 1) -> Parts:
    """x - alpha y. To x, torch adds -y, of which a real one has no -0 for the imaginary part."""
    subtrahend = scaled(write, other, alpha)
    if parts_of(subtrahend) is None:
        return _sum(write, x, scaled(write, subtrahend, -1), plus)
    return _sum(write, x, subtrahend, minus)


def rsub(write: Write, x: Any, other: Any, alpha: Any = 1) -> Parts:
    """y - alpha x"""
    return sub(write, other, x, alpha=alpha)


def _sum(write: Write, x: Any, other: Any, combine: Callable[..., Any]) -> Parts:
    """Parts by parts, also where one is 0: -0 + 0 is 0, and which of them it is decides on the side of a branch cut."""
    pairs = zip(_summand(write, x, other), _summand(write, other, x), strict=True)
    return Parts(*(combine(write, *pair) for pair in pairs))


def _summand(write: Write, x: Any, other: Any) -> Parts:
    """The parts of an operand; of a real one the second is 0, or zeros where it gives the result its shape."""
    is_tensor = isinstance(x, fx.Node) and isinstance(x.meta["val"], torch.Tensor)
    widens = is_tensor and not (isinstance(other, Parts) and are_alike(x, other.real))
    return as_parts(write, x) if widens else number(x)


def mul(write: Write, x: Any, other: Any) -> Parts:
    """x y"""
    return product(write, x, other, times)


def product(write: Write, x: Any, other: Any, times: Callable[..., Any]) -> Parts:
    """A product of any kind, as of matrices, that ``times`` makes of real operands. What is real is multiplied by as a
    number a + 0i, as in torch: 0 times infinity is NaN, and 0 b + 0 is 0 where b is negative.
    """
    ours, theirs = number(x), number(other)
    real = minus(write, times(write, ours.real, theirs.real), times(write, ours.imag, theirs.imag))
    imag = plus(write, times(write, ours.real, theirs.imag), times(write, ours.imag, theirs.real))
    return Parts(real, imag)


def div(write: Write, x: Any, other: Any) -> Parts:
    """x / y. Both are divided by the larger part of y first, as torch does, which keeps squares in range."""
    theirs = parts_of(other)
    if theirs is None:
        return Parts(*(write(aten.div.Tensor, part, other) for part in x))
    if not isinstance(theirs.real, fx.Node):
        return mul(write, x, 1 / complex(*theirs))
    larger = write(aten.maximum.default, *(write(aten.abs.default, part) for part in theirs))
    divisor = Parts(*(write(aten.div.Tensor, part, larger) for part in theirs))
    squares = [write(aten.mul.Tensor, part, part) for part in divisor]
    scale = times(write, write(aten.add.Tensor, *squares), larger)
    return Parts(*(write(aten.div.Tensor, part, scale) for part in mul(write, x, conj(write, divisor))))


def reciprocal(write: Write, x: Parts) -> Parts:
    """1 / x"""
    return div(write, 1, x)


def addcmul(write: Write, x: Any, one: Any, other: Any, *, value: Any = 1) -> Parts:
    """x + value y z"""
    return add(write, x, scaled(write, one, other), alpha=value)


def addcdiv(write: Write, x: Any, one: Any, other: Any, *, value: Any = 1) -> Parts:
    """x + value y / z"""
    return add(write, x, div(write, one, other), alpha=value)


def neg(write: Write, x: Parts) -> Parts:
    """-x"""
    return Parts(*(write(aten.neg.default, part) for part in x))


def conj(write: Write, x: Any) -> Parts:
    """The conjugate, also of a number, for which autograd asks."""
    if isinstance(x, complex):
        return Parts(*(write(aten.full.default, [], part, dtype=torch.float64) for part in (x.real, -x.imag)))
    return Parts(x.real, write(aten.neg.default, x.imag))


def magnitude(write: Write, x: Parts) -> fx.Node:
    """|x|"""
    return write(aten.hypot.default, *x)


def angle(write: Write, x: Parts) -> fx.Node:
    """That from the real axis, in radians."""
    return write(aten.atan2.default, x.imag, x.real)


def sgn(write: Write, x: Parts) -> Parts:
    """x / |x|, 0 of 0."""
    size = magnitude(write, x)
    is_zero = write(aten.eq.Scalar, size, 0)
    return Parts(*(write(aten.masked_fill.Scalar, part, is_zero, 0) for part in div(write, x, size)))


# What is asked of operands.


def truth(write: Write, x: Any) -> fx.Node:
    """Whether elements are not 0."""
    return write(aten.logical_or.default, *x) if isinstance(x, Parts) else x


def equal(write: Write, x: Any, other: Any) -> fx.Node:
    """x == y"""
    pairs = zip(number(x), number(other), strict=True)
    return write(aten.logical_and.default, *(_same(write, *pair) for pair in pairs))


def _same(write: Write, x: Any, other: Any) -> fx.Node:
    if not isinstance(x, fx.Node):
        x, other = other, x
    return write(aten.eq.Tensor if isinstance(other, fx.Node) else aten.eq.Scalar, x, other)


def unequal(write: Write, x: Any, other: Any) -> fx.Node:
    """x != y"""
    return write(aten.logical_not.default, equal(write, x, other))
