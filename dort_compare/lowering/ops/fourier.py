"""Fourier transforms, and complex tensors as their real and imaginary parts, which is what they are in ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.transforms import of_complex, of_reals, to_reals
from dort_compare.lowering.values import dtype_of, shape_of

aten = torch.ops.aten

_NO_SCALE, _BY_ROOT = 0, 1
"""``normalization``, beside 2: by the number of elements."""


@lowering(aten.view_as_real.default)
def view_as_real(op: Builder, x: ir.Value) -> ir.Value:
    """view_as_real(Tensor(a) self) -> Tensor(a)"""
    return op.Identity(x)


@lowering(aten.view_as_complex.default)
def view_as_complex(op: Builder, x: ir.Value) -> ir.Value:
    """view_as_complex(Tensor(a) self) -> Tensor(a)"""
    return op.Identity(x)


@lowering(aten.resolve_conj.default)
def resolve_conj(op: Builder, x: ir.Value) -> ir.Value:
    """resolve_conj(Tensor(a) self) -> Tensor(a)

    What is handed over is resolved.
    """
    return op.Identity(x)


@lowering(aten._fft_r2c.default)
def fft_r2c(op: Builder, x: ir.Value, dim: Sequence[int], normalization: int, onesided: bool) -> ir.Value:
    """_fft_r2c(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor

    Forward, along the last of ``dim`` first.
    """
    rank = len(shape_of(x))
    dims = [each % rank for each in dim]
    lengths = [_length(op, x, each) for each in dims]
    n = lengths[-1]
    kept = n // 2 + 1 if onesided else n
    result = _along(op, x, dims[-1], rank, n, [kept, 2], partial(of_reals, op, n=n, kept=kept))
    result = _of_complex(op, result, rank, dict(zip(dims[:-1], lengths[:-1], strict=True)), -1)
    return _scaled(op, result, lengths, normalization)


@lowering(aten._fft_c2c.default)
def fft_c2c(op: Builder, x: ir.Value, dim: Sequence[int], normalization: int, forward: bool) -> ir.Value:
    """_fft_c2c(Tensor self, SymInt[] dim, int normalization, bool forward) -> Tensor"""
    rank = len(shape_of(x)) - 1
    lengths = {each % rank: _length(op, x, each % rank) for each in dim}
    result = _of_complex(op, x, rank, lengths, -1 if forward else 1)
    return _scaled(op, result, [*lengths.values()], normalization)


@lowering(aten._fft_c2r.default)
def fft_c2r(op: Builder, x: ir.Value, dim: Sequence[int], normalization: int, last_dim_size: int) -> ir.Value:
    """_fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor

    Backward, along the last of ``dim`` last: of the first half of what is symmetric there.
    """
    rank = len(shape_of(x)) - 1
    *others, last = (each % rank for each in dim)
    lengths = {each: _length(op, x, each) for each in others}
    kept = _length(op, x, last)
    if not isinstance(last_dim_size, int) or kept != last_dim_size // 2 + 1:
        raise op.unsupported("a length that is not known, or is not that of what is given")
    inner = _of_complex(op, x, rank, lengths, 1)
    result = _along(op, inner, last, rank, kept, [last_dim_size], partial(to_reals, op, n=last_dim_size))
    return _scaled(op, result, [*lengths.values(), last_dim_size], normalization)


def _length(op: Builder, x: ir.Value, dim: int) -> int:
    n = shape_of(x)[dim]
    if not isinstance(n, int):
        raise op.unsupported("a transform of a length that is not known")
    return n


def _of_complex(op: Builder, x: ir.Value, rank: int, lengths: Mapping[int, int], sign: int) -> ir.Value:
    """[..., 2] -> [..., 2], transformed along dimensions of the lengths given."""
    for dim, n in lengths.items():
        x = _along(op, x, dim, rank, n, [n, 2], partial(of_complex, op, n=n, sign=sign))
    return x


def _along(
    op: Builder,
    x: ir.Value,
    dim: int,
    rank: int,
    length: int,
    row: Sequence[int],
    transform: Callable[[ir.Value], ir.Value],
) -> ir.Value:
    """``transform``, of rows [B, columns], along ``dim`` of ``rank`` dimensions, of a ``length`` before and a ``row``
    afterwards: of a length, and of two parts behind the other dimensions where the result is complex, as ``x`` may be.
    """
    assert x.shape is not None
    others = [each for each in range(rank) if each != dim]
    parts = list(range(rank, len(x.shape)))
    columns = length * 2 ** len(parts)
    rows = transform(op.Reshape(op.Transpose(x, perm=[*others, dim, *parts]), [-1, columns]))
    result = op.Reshape(rows, op.dims([*(op.own_size(x, each) for each in others), *row]))
    back = sorted(range(rank), key=[*others, dim].__getitem__)
    return op.Transpose(result, perm=[*back, *range(rank, rank + len(row) - 1)])


def _scaled(op: Builder, x: ir.Value, lengths: Sequence[int], normalization: int) -> ir.Value:
    count = math.prod(lengths)
    if normalization == _NO_SCALE or count == 1:
        return x
    scale = 1 / math.sqrt(count) if normalization == _BY_ROOT else 1 / count
    return op.Mul(x, op.const(scale, dtype_of(x)))
