"""Complex operators in real ones: what each makes of the real and imaginary parts of its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from dort_compare.backends import complex_arithmetic as arithmetic
from dort_compare.backends import complex_functions as functions
from dort_compare.backends.complex_arithmetic import Parts, Write, are_alike, as_parts, number, plus, times, truth
from dort_compare.dtypes import is_floating_tensor, real_dtype

aten = torch.ops.aten

Rule = Callable[..., Any]
"""``rule(write, *args, **options)``, of the arguments of an operator with ``Parts`` in the place of complex tensors,
returns ``Parts`` or the node of a real result. Raises NotImplementedError for arguments that it is not made for."""


# Operators that do to each part what they do to the whole.


def _each(target: Any) -> Rule:
    def rule(write: Write, x: Any, *args: Any, **options: Any) -> Parts:
        whole = as_parts(write, x)
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

    def rule(write: Write, *args: Any, **options: Any) -> Parts:
        *likes, value = args
        return Parts(*(write(target, *map(_first, likes), each, **_part(options, 0)) for each in number(value)))

    return rule


def _scalar_tensor(write: Write, value: Any, **options: Any) -> Parts:
    return _filled(aten.full.default)(write, [], value, **options)


def _zeros(target: Any) -> Rule:
    def rule(write: Write, *args: Any, **options: Any) -> Parts:
        zeros = write(target, *map(_first, args), **_part(options, 0))
        return Parts(zeros, zeros)

    return rule


def _ones(target: Any) -> Rule:
    def rule(write: Write, *args: Any, **options: Any) -> Parts:
        return as_parts(write, write(target, *map(_first, args), **_part(options, 0)))

    return rule


def _first(value: Any) -> Any:
    return value.real if isinstance(value, Parts) else value


def _with_number(target: Any) -> Rule:
    """For what writes a number, its last argument, to some places of a tensor."""

    def rule(write: Write, x: Parts, *args: Any) -> Parts:
        *places, value = args
        return Parts(*(write(target, part, *places, each) for part, each in zip(x, number(value), strict=True)))

    return rule


def _padded(write: Write, x: Parts, pad: Any, value: Any = 0) -> Parts:
    return _with_number(aten.constant_pad_nd.default)(write, x, pad, value)


# Operators of which some operands may be real.


def _cat(write: Write, tensors: Any, dim: int = 0) -> Parts:
    parts = [as_parts(write, tensor) for tensor in tensors]
    return Parts(*(write(aten.cat.default, list(each), dim) for each in zip(*parts, strict=True)))


def _where(write: Write, condition: Any, x: Any, other: Any) -> Parts:
    pairs = zip(as_parts(write, x), as_parts(write, other), strict=True)
    return Parts(*(write(aten.where.self, condition, *pair) for pair in pairs))


def _written(target: Any) -> Rule:
    def rule(write: Write, x: Any, source: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(x, Parts):
            return write(target, x, _to_copy(write, source, dtype=x.meta["val"].dtype), *args, **options)
        pairs = zip(x, as_parts(write, source), strict=True)
        return Parts(*(write(target, *pair, *args, **options) for pair in pairs))

    return rule


def _masked_fill(write: Write, x: Any, mask: Any, value: Any) -> Parts:
    return _where(write, mask, value, x)


def _to_copy(write: Write, x: Any, **options: Any) -> Any:
    dtype = options.get("dtype")
    if dtype == torch.bool:
        return write(aten._to_copy.default, truth(write, x), **options)
    if dtype is not None and not dtype.is_complex:
        return write(aten._to_copy.default, x.real, **options)
    return _each(aten._to_copy.default)(write, x, **options)


def _complex(write: Write, real: fx.Node, imag: fx.Node) -> Parts:
    if are_alike(real, imag):
        return Parts(real, imag)
    pairs = ((real, imag), (imag, real))
    return Parts(*(times(write, part, write(aten.ones_like.default, other)) for part, other in pairs))


def _itself(_: Write, x: Parts) -> Parts:
    return x


def _matrices(target: Any) -> Rule:
    def rule(write: Write, x: Any, other: Any) -> Parts:
        return arithmetic.product(write, x, other, lambda write, a, b: write(target, a, b))

    return rule


def _addmm(write: Write, x: Any, one: Any, other: Any, *, beta: Any = 1, alpha: Any = 1) -> Parts:
    if beta == 0:
        raise NotImplementedError("a summand that torch does not read")
    product = _matrices(aten.mm.default)(write, one, other)
    return arithmetic.add(write, arithmetic.scaled(write, x, beta), product, alpha=alpha)


# Operators with a real result.


def _of_truth(target: Any) -> Rule:
    def rule(write: Write, *args: Any) -> fx.Node:
        return write(target, *(truth(write, each) for each in args))

    return rule


def _either(target: Any) -> Rule:
    """For what holds of a complex number where it holds of a part."""

    def rule(write: Write, x: Parts) -> fx.Node:
        return write(aten.logical_or.default, *(write(target, part) for part in x))

    return rule


def _var(write: Write, x: Parts, *args: Any, **options: Any) -> fx.Node:
    return plus(write, *(write(aten.var.correction, part, *args, **options) for part in x))


def _std(write: Write, x: Parts, *args: Any, **options: Any) -> fx.Node:
    return write(aten.sqrt.default, _var(write, x, *args, **options))


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
    *(aten.unfold_backward.default, aten.unfold_copy.default, aten.diagonal_copy.default, aten.diag_embed.default),
    *(aten._unsafe_index.Tensor, aten._unsafe_index_put.default, aten.index_copy.default, aten.take.default),
    *(aten.put.default, aten.im2col.default, aten.col2im.default),
    *(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default),
    *(aten.reflection_pad1d_backward.default, aten.reflection_pad2d_backward.default),
    *(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default),
    *(aten.replication_pad1d_backward.default, aten.replication_pad2d_backward.default),
)

ARITHMETIC: dict[Any, Rule] = {
    **dict.fromkeys((aten.add.Tensor, aten.add.Scalar), arithmetic.add),
    **dict.fromkeys((aten.sub.Tensor, aten.sub.Scalar), arithmetic.sub),
    **dict.fromkeys((aten.rsub.Tensor, aten.rsub.Scalar), arithmetic.rsub),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), arithmetic.mul),
    **dict.fromkeys((aten.div.Tensor, aten.div.Scalar), arithmetic.div),
    aten.addcmul.default: arithmetic.addcmul,
    aten.addcdiv.default: arithmetic.addcdiv,
}
"""Those whose operands may be of several dtypes, and are computed with in that of the result."""

RULES: dict[Any, Rule] = {
    **ARITHMETIC,
    **{target: _each(target) for target in _EACH},
    **{
        target: _filled(target)
        for target in (aten.full.default, aten.full_like.default, aten.new_full.default, aten.fill.Scalar)
    },
    **{
        target: _zeros(target)
        for target in (
            *(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default),
            *(aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default),
            *(aten.new_empty.default, aten.new_empty_strided.default),
        )
    },
    **{target: _ones(target) for target in (aten.ones.default, aten.ones_like.default, aten.new_ones.default)},
    **{
        target: _with_number(target)
        for target in (aten.masked_fill.Scalar, aten.index_fill.int_Scalar, aten.scatter.value)
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
    aten.masked_fill.Tensor: _masked_fill,
    aten._to_copy.default: _to_copy,
    aten.complex.default: _complex,
    **{target: _matrices(target) for target in (aten.mm.default, aten.bmm.default)},
    aten.addmm.default: _addmm,
    aten.reciprocal.default: arithmetic.reciprocal,
    **dict.fromkeys((aten._conj.default, aten._conj_physical.default, aten.conj_physical.default), arithmetic.conj),
    aten.resolve_conj.default: _itself,
    aten.abs.default: arithmetic.magnitude,
    aten.angle.default: arithmetic.angle,
    aten.sgn.default: arithmetic.sgn,
    **dict.fromkeys((aten.eq.Tensor, aten.eq.Scalar), arithmetic.equal),
    **dict.fromkeys((aten.ne.Tensor, aten.ne.Scalar), arithmetic.unequal),
    **{
        target: _of_truth(target)
        for target in (
            *(aten.logical_not.default, aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default),
            *(aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims),
            aten.nonzero.default,
        )
    },
    **{target: _either(target) for target in (aten.isnan.default, aten.isinf.default)},
    aten.var.correction: _var,
    aten.std.correction: _std,
    aten.polar.default: functions.polar,
    aten.exp.default: functions.exp,
    aten.exp2.default: functions.exp2,
    aten.log.default: functions.log,
    aten.log2.default: functions.log2,
    aten.log10.default: functions.log10,
    aten.sqrt.default: functions.sqrt,
    aten.rsqrt.default: functions.rsqrt,
    aten.pow.Tensor_Scalar: functions.power,
    aten.pow.Scalar: functions.power_of_number,
    aten.sin.default: functions.sin,
    aten.cos.default: functions.cos,
    aten.tan.default: functions.tan,
    aten.sinh.default: functions.sinh,
    aten.cosh.default: functions.cosh,
    aten.tanh.default: functions.tanh,
    aten.tanh_backward.default: functions.tanh_backward,
    aten.sigmoid.default: functions.sigmoid,
    aten.sigmoid_backward.default: functions.sigmoid_backward,
}
"""By operator. What is not here runs as it stands."""
