"""Complex operators in real ones: what each makes of the real and imaginary parts of its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import fx

from dort_compare.dtypes import is_floating_tensor, real_dtype

aten = torch.ops.aten

Write = Callable[..., fx.Node]
"""``write(target, *args, **options)`` adds a call to a graph."""


class Parts(NamedTuple):
    """The real and imaginary parts of a complex tensor: nodes of a graph, or numbers."""

    real: Any
    imag: Any


Rule = Callable[..., Any]
"""``rule(write, *args, **options)``, of the arguments of an operator with ``Parts`` in the place of complex tensors,
returns ``Parts`` or the node of a real result. Raises NotImplementedError for arguments that it is not made for."""


def parts_of(value: Any) -> Parts | None:
    """The parts of a complex operand; None of a real one."""
    if isinstance(value, complex):
        return Parts(value.real, value.imag)
    return value if isinstance(value, Parts) else None


def _number(value: Any) -> Parts:
    """The parts of an operand, of which a real one has 0 for the second."""
    return parts_of(value) or Parts(value, 0)


# Operators that do to each part what they do to the whole.


def _each(target: Any) -> Rule:
    def rule(write: Write, x: Any, *args: Any, **options: Any) -> Parts:
        whole = _as_parts(write, x)
        return Parts(*(write(target, whole[part], *_part(args, part), **_part(options, part)) for part in (0, 1)))

    return rule


def _part(value: Any, part: int) -> Any:
    if isinstance(value, Parts):
        return value[part]
    if isinstance(value, (tuple, list)):
        return type(value)(_part(each, part) for each in value)
    if isinstance(value, dict):
        return {key: _part(each, part) for key, each in value.items()}
    if isinstance(value, torch.dtype):
        return real_dtype(value)
    if isinstance(value, complex) or (isinstance(value, fx.Node) and is_floating_tensor(value.meta["val"])):
        raise NotImplementedError("a real operand, or a number, beside complex ones")
    return value


def _filled(target: Any) -> Rule:
    """For what fills a tensor, like another or of a size, with a number."""

    def rule(write: Write, like: Any, value: Any, **options: Any) -> Parts:
        return Parts(*(write(target, _first(like), each, **_part(options, 0)) for each in _number(value)))

    return rule


def _scalar_tensor(write: Write, value: Any, **options: Any) -> Parts:
    return _filled(aten.full.default)(write, [], value, **options)


def _zeros(target: Any) -> Rule:
    def rule(write: Write, *args: Any, **options: Any) -> Parts:
        zeros = write(target, *map(_first, args), **_part(options, 0))
        return Parts(zeros, zeros)

    return rule


def _first(value: Any) -> Any:
    return value.real if isinstance(value, Parts) else value


def _padded(write: Write, x: Any, pad: Any, value: Any = 0) -> Parts:
    pairs = zip(x, _number(value), strict=True)
    return Parts(*(write(aten.constant_pad_nd.default, part, pad, each) for part, each in pairs))


# Operators of which some operands may be real.


def _as_parts(write: Write, value: Any) -> Parts:
    return parts_of(value) or Parts(value, write(aten.zeros_like.default, value))


def _cat(write: Write, tensors: Any, dim: int = 0) -> Parts:
    parts = [_as_parts(write, tensor) for tensor in tensors]
    return Parts(*(write(aten.cat.default, list(each), dim) for each in zip(*parts, strict=True)))


def _where(write: Write, condition: Any, x: Any, other: Any) -> Parts:
    pairs = zip(_as_parts(write, x), _as_parts(write, other), strict=True)
    return Parts(*(write(aten.where.self, condition, *pair) for pair in pairs))


def _written(target: Any) -> Rule:
    def rule(write: Write, x: Any, source: Any, *args: Any, **options: Any) -> Parts:
        pairs = zip(_as_parts(write, x), _as_parts(write, source), strict=True)
        return Parts(*(write(target, *pair, *args, **options) for pair in pairs))

    return rule


def _masked_fill(write: Write, x: Any, mask: Any, value: Any) -> Parts:
    pairs = zip(x, _number(value), strict=True)
    return Parts(*(write(aten.masked_fill.Scalar, part, mask, each) for part, each in pairs))


def _to_copy(write: Write, x: Any, **options: Any) -> Any:
    dtype = options.get("dtype")
    if dtype == torch.bool:
        return write(aten._to_copy.default, write(aten.logical_or.default, *x), **options)
    if dtype is not None and not dtype.is_complex:
        return write(aten._to_copy.default, x.real, **options)
    return _each(aten._to_copy.default)(write, x, **options)


def _complex(write: Write, real: fx.Node, imag: fx.Node) -> Parts:
    if _are_alike(real, imag):
        return Parts(real, imag)
    pairs = ((real, imag), (imag, real))
    return Parts(*(_times(write, part, write(aten.ones_like.default, other)) for part, other in pairs))


def _are_alike(x: fx.Node, other: fx.Node) -> bool:
    """Whether two tensors are of one shape. Comparing symbolic sizes themselves would add guards."""
    ours, theirs = ([*map(str, each.meta["val"].shape)] for each in (x, other))
    return ours == theirs


def _itself(_: Write, x: Parts) -> Parts:
    return x


# Arithmetic.


def _times(write: Write, x: Any, other: Any) -> Any:
    return write(aten.mul.Tensor, x, other) if isinstance(x, fx.Node) else write(aten.mul.Tensor, other, x)


def _minus(write: Write, x: Any, other: Any) -> Any:
    if isinstance(x, fx.Node):
        return write(aten.sub.Tensor, x, other)
    return write(aten.add.Tensor, write(aten.neg.default, other), x)


def _plus(write: Write, x: Any, other: Any) -> Any:
    return write(aten.add.Tensor, x, other) if isinstance(x, fx.Node) else write(aten.add.Tensor, other, x)


def _scaled(write: Write, x: Any, alpha: Any) -> Any:
    """``alpha`` times an operand, numbers or tensors of any kind."""
    if alpha == 1:
        return x
    if not isinstance(x, (Parts, fx.Node)):
        return alpha * x
    return _times(write, x, alpha) if not (parts_of(x) or parts_of(alpha)) else _mul(write, x, alpha)


def _add(write: Write, x: Any, other: Any, *, alpha: Any = 1) -> Parts:
    return _sum(write, x, _scaled(write, other, alpha), _plus)


def _sub(write: Write, x: Any, other: Any, *, alpha: Any = 1) -> Parts:
    return _sum(write, x, _scaled(write, other, alpha), _minus)


def _sum(write: Write, x: Any, other: Any, combine: Callable[..., Any]) -> Parts:
    ours, theirs = _summand(write, x, other), _summand(write, other, x)
    if ours is None:
        assert theirs is not None
        imag = theirs.imag if combine is _plus else write(aten.neg.default, theirs.imag)
        return Parts(combine(write, x, theirs.real), imag)
    if theirs is None:
        return Parts(combine(write, ours.real, other), ours.imag)
    return Parts(*(combine(write, a, b) for a, b in zip(ours, theirs, strict=True)))


def _summand(write: Write, x: Any, other: Any) -> Parts | None:
    """The parts of an operand; None of a real one that leaves the imaginary part of the ``other`` as it is."""
    is_tensor = isinstance(x, fx.Node) and isinstance(x.meta["val"], torch.Tensor)
    widens = is_tensor and isinstance(other, Parts) and not _are_alike(x, other.real)
    return _as_parts(write, x) if widens else parts_of(x)


def _mul(write: Write, x: Any, other: Any) -> Parts:
    return _product(write, x, other, _times)


def _matrices(target: Any) -> Rule:
    def rule(write: Write, x: Any, other: Any) -> Parts:
        return _product(write, x, other, lambda write, a, b: write(target, a, b))

    return rule


def _product(write: Write, x: Any, other: Any, times: Callable[..., Any]) -> Parts:
    ours, theirs = parts_of(x), parts_of(other)
    if ours is None:
        assert theirs is not None
        return Parts(*(times(write, x, part) for part in theirs))
    if theirs is None:
        return Parts(*(times(write, part, other) for part in ours))
    real = _minus(write, times(write, ours.real, theirs.real), times(write, ours.imag, theirs.imag))
    imag = _plus(write, times(write, ours.real, theirs.imag), times(write, ours.imag, theirs.real))
    return Parts(real, imag)


def _addmm(write: Write, x: Any, one: Any, other: Any, *, beta: Any = 1, alpha: Any = 1) -> Parts:
    if beta == 0:
        raise NotImplementedError("a summand that torch does not read")
    return _add(write, _scaled(write, x, beta), _matrices(aten.mm.default)(write, one, other), alpha=alpha)


def _div(write: Write, x: Any, other: Any) -> Parts:
    """Both are divided by the larger part of the divisor first, as torch does, which keeps squares in range."""
    theirs = parts_of(other)
    if theirs is None:
        return Parts(*(write(aten.div.Tensor, part, other) for part in x))
    if not isinstance(theirs.real, fx.Node):
        return _mul(write, x, 1 / complex(*theirs))
    larger = write(aten.maximum.default, *(write(aten.abs.default, part) for part in theirs))
    divisor = Parts(*(write(aten.div.Tensor, part, larger) for part in theirs))
    squares = [write(aten.mul.Tensor, part, part) for part in divisor]
    scale = _times(write, write(aten.add.Tensor, *squares), larger)
    return Parts(*(write(aten.div.Tensor, part, scale) for part in _mul(write, x, _conj(write, divisor))))


def _reciprocal(write: Write, x: Parts) -> Parts:
    return _div(write, Parts(write(aten.ones_like.default, x.real), write(aten.zeros_like.default, x.real)), x)


def _pow(write: Write, x: Parts, exponent: Any) -> Parts:
    if exponent not in (1, 2):
        raise NotImplementedError("another power than a square")
    return x if exponent == 1 else _mul(write, x, x)


def _conj(write: Write, x: Any) -> Parts:
    if isinstance(x, complex):  # autograd asks for that of a factor
        return Parts(*(write(aten.full.default, [], part, dtype=torch.float64) for part in (x.real, -x.imag)))
    return Parts(x.real, write(aten.neg.default, x.imag))


def _abs(write: Write, x: Parts) -> fx.Node:
    return write(aten.hypot.default, *x)


def _angle(write: Write, x: Parts) -> fx.Node:
    return write(aten.atan2.default, x.imag, x.real)


def _sgn(write: Write, x: Parts) -> Parts:
    """x / |x|, 0 of 0."""
    size = _abs(write, x)
    is_zero = write(aten.eq.Scalar, size, 0)
    return _masked_fill(write, _div(write, x, size), is_zero, 0)


def _equal(write: Write, x: Any, other: Any) -> fx.Node:
    pairs = zip(_number(x), _number(other), strict=True)
    same = [write(aten.eq.Tensor if isinstance(b, fx.Node) else aten.eq.Scalar, a, b) for a, b in pairs]
    return write(aten.logical_and.default, *same)


def _unequal(write: Write, x: Any, other: Any) -> fx.Node:
    return write(aten.logical_not.default, _equal(write, x, other))


def _polar(write: Write, size: fx.Node, angle: fx.Node) -> Parts:
    turned = (write(each, angle) for each in (aten.cos.default, aten.sin.default))
    return Parts(*(write(aten.mul.Tensor, size, each) for each in turned))


def _exp(write: Write, x: Parts) -> Parts:
    return _polar(write, write(aten.exp.default, x.real), x.imag)


def _log(write: Write, x: Parts) -> Parts:
    return Parts(write(aten.log.default, _abs(write, x)), _angle(write, x))


_EACH = (
    *(aten.view.default, aten._unsafe_view.default, aten.expand.default, aten.permute.default, aten.transpose.int),
    *(aten.t.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.select.int),
    *(aten.slice.Tensor, aten.diagonal.default, aten.alias.default, aten.detach.default, aten.clone.default),
    *(aten.split.Tensor, aten.split_with_sizes.default, aten.flip.default, aten.roll.default, aten.repeat.default),
    *(aten.index.Tensor, aten.index_select.default, aten.gather.default, aten.embedding.default),
    *(aten.index_put.default, aten.scatter.src, aten.scatter_add.default, aten.index_add.default),
    *(aten.slice_backward.default, aten.select_backward.default, aten.diagonal_backward.default),
    *(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.cumsum.default),
    *(aten.neg.default, aten.tril.default, aten.triu.default, aten.lift_fresh_copy.default, aten.unfold.default),
    aten.unfold_backward.default,
)

RULES: dict[Any, Rule] = {
    **{target: _each(target) for target in _EACH},
    **{target: _filled(target) for target in (aten.full.default, aten.full_like.default)},
    **{
        target: _zeros(target)
        for target in (
            *(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default),
            *(aten.empty.memory_format, aten.empty_strided.default, aten.new_empty_strided.default),
        )
    },
    aten.scalar_tensor.default: _scalar_tensor,
    aten.constant_pad_nd.default: _padded,
    aten.cat.default: _cat,
    aten.where.self: _where,
    **{
        target: _written(target)
        for target in (
            *(aten.copy.default, aten.slice_scatter.default, aten.select_scatter.default),
            aten.diagonal_scatter.default,
        )
    },
    aten.masked_fill.Scalar: _masked_fill,
    aten._to_copy.default: _to_copy,
    aten.complex.default: _complex,
    aten.polar.default: _polar,
    **dict.fromkeys((aten.add.Tensor, aten.add.Scalar), _add),
    **dict.fromkeys((aten.sub.Tensor, aten.sub.Scalar), _sub),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), _mul),
    **dict.fromkeys((aten.div.Tensor, aten.div.Scalar), _div),
    **{target: _matrices(target) for target in (aten.mm.default, aten.bmm.default)},
    aten.addmm.default: _addmm,
    aten.reciprocal.default: _reciprocal,
    aten.pow.Tensor_Scalar: _pow,
    **dict.fromkeys((aten._conj.default, aten._conj_physical.default, aten.conj_physical.default), _conj),
    aten.resolve_conj.default: _itself,
    aten.abs.default: _abs,
    aten.angle.default: _angle,
    aten.sgn.default: _sgn,
    **dict.fromkeys((aten.eq.Tensor, aten.eq.Scalar), _equal),
    **dict.fromkeys((aten.ne.Tensor, aten.ne.Scalar), _unequal),
    aten.exp.default: _exp,
    aten.log.default: _log,
}
"""By operator. What is not here runs as it stands."""
