"""Data movement: views, permutations, joins and slices."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.matrices import triangle
from dort_compare.lowering.padded import padded
from dort_compare.lowering.precision import in_int64
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import from_front, larger, minus, plus, smaller, times
from dort_compare.lowering.values import Dim, dtype_of, shape_of

aten = torch.ops.aten
prims = torch.ops.prims
_END = 2**63 - 1


@lowering(aten.view.default, aten._unsafe_view.default, aten.reshape.default, prims.reshape.default)
def view(op: Builder, x: ir.Value, size: Sequence[Dim]) -> ir.Value:
    """view(Tensor(a) self, SymInt[] size) -> Tensor(a)"""
    return reshape_to(op, x, op.result.shape, size)


def reshape_to(op: Builder, x: ir.Value, traced: Sequence[int | torch.SymInt], size: Sequence[Dim]) -> ir.Value:
    """Reshapes to the traced shape; one symbolic size among non-zero numbers needs no arithmetic, only a -1."""
    known = [n if isinstance(n, int) else -1 for n in traced]
    if -1 not in known:
        return op.Reshape(x, op.dims(known), allowzero=int(0 in known))
    if known.count(-1) == 1 and 0 not in known:
        return op.Reshape(x, op.dims(known))
    return op.Reshape(x, op.dims(size), allowzero=1)


@lowering(prims.collapse.default, prims.collapse_view.default)
def collapse(op: Builder, x: ir.Value, start: int, end: int) -> ir.Value:
    """collapse(Tensor a, int start, int end) -> Tensor

    The dimensions from ``start`` to ``end``, which is one of them, become one.
    """
    sizes = [op.size(x, d) for d in range(len(shape_of(x)))]
    return reshape_to(op, x, op.result.shape, [*sizes[:start], -1, *sizes[end + 1 :]])


@lowering(prims.split_dim.default)
def split_dim(op: Builder, x: ir.Value, dim: int, outer_length: Dim) -> ir.Value:
    """split_dim(Tensor(a) a, int dim, SymInt outer_length) -> Tensor(a)"""
    sizes = [op.size(x, d) for d in range(len(shape_of(x)))]
    return reshape_to(op, x, op.result.shape, [*sizes[:dim], outer_length, -1, *sizes[dim + 1 :]])


@lowering(aten.unsqueeze.default)
def unsqueeze(op: Builder, x: ir.Value, dim: int) -> ir.Value:
    """unsqueeze(Tensor(a) self, int dim) -> Tensor(a)"""
    return op.Unsqueeze(x, [dim])


@lowering(aten.squeeze.dim, aten.squeeze.dims, prims.squeeze.default)
def squeeze(op: Builder, x: ir.Value, dim: int | Sequence[int]) -> ir.Value:
    """squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)"""
    dims = [dim] if isinstance(dim, int) else list(dim)
    shape = shape_of(x)
    ones = [d for d in dims if shape and isinstance(shape[d], int) and shape[d] == 1]
    return op.Squeeze(x, ones) if ones else x


@lowering(aten.t.default)
def t(op: Builder, x: ir.Value) -> ir.Value:
    """t(Tensor(a) self) -> Tensor(a)"""
    return op.Transpose(x, perm=[1, 0]) if len(shape_of(x)) == 2 else x


@lowering(aten.transpose.int)
def transpose(op: Builder, x: ir.Value, dim0: int, dim1: int) -> ir.Value:
    """transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)"""
    perm = list(range(len(shape_of(x))))
    if not perm:
        return x
    perm[dim0], perm[dim1] = perm[dim1], perm[dim0]
    return op.Transpose(x, perm=perm)


@lowering(aten.permute.default, prims.transpose.default)
def permute(op: Builder, x: ir.Value, dims: Sequence[int]) -> ir.Value:
    """permute(Tensor(a) self, int[] dims) -> Tensor(a)"""
    return op.Transpose(x, perm=[d % len(dims) for d in dims]) if dims else x


@lowering(aten.expand.default)
def expand(op: Builder, x: ir.Value, size: Sequence[Dim], implicit: bool = False) -> ir.Value:
    """expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)"""
    traced = op.result.shape
    before = list(shape_of(x))
    kept = len(traced) - len(before)
    holds_none = any(isinstance(n, int) and n == 0 for n in traced)
    sizes: list[Dim] = []
    for i, (wanted, n) in enumerate(zip(size, traced, strict=True)):
        if isinstance(n, int):
            sizes.append(n)
        elif i >= kept and isinstance(wanted, int) and wanted == -1:
            sizes.append(op.size(x, i - kept) if holds_none else 1)
        else:
            sizes.append(wanted)
    if all(isinstance(n, int) for n in (*before, *sizes)) and before == sizes:
        return x
    return broadcast_to(op, x, sizes)


def broadcast_to(op: Builder, x: ir.Value, sizes: Sequence[Dim]) -> ir.Value:
    """Expands to these sizes. ONNX Runtime's optimizer takes an Expand of 1 to 0 for a no-op, unless of a scalar."""
    return op.Expand(op.const(0, dtype_of(x)) if 0 in sizes else x, op.dims(sizes))


@lowering(prims.broadcast_in_dim.default)
def broadcast_in_dim(op: Builder, x: ir.Value, shape: Sequence[Dim], broadcast_dimensions: Sequence[int]) -> ir.Value:
    """broadcast_in_dim(Tensor(a) a, SymInt[] shape, int[] broadcast_dimensions) -> Tensor(a)"""
    added = [d for d in range(len(shape)) if d not in broadcast_dimensions]
    return broadcast_to(op, op.Unsqueeze(x, added) if added else x, shape)


@lowering(aten.cat.default, prims.cat.default)
def cat(op: Builder, tensors: Sequence[ir.Value], dim: int = 0) -> ir.Value:
    """cat(Tensor[] tensors, int dim=0) -> Tensor

    torch lets vectors of no element join tensors of any rank; they add nothing.
    """
    rank = op.result.ndim
    joined = [x for x in tensors if len(shape_of(x)) == rank] or list(tensors[:1])
    joined = [op.cast(x, op.result.dtype) for x in joined]
    return joined[0] if len(joined) == 1 else op.Concat(*joined, axis=dim % rank)


@lowering(aten.slice.Tensor, aten.slice_copy.Tensor)
def slice_(
    op: Builder, x: ir.Value, dim: int = 0, start: Dim | None = None, end: Dim | None = None, step: Dim = 1
) -> ir.Value:
    """slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)"""
    first, last = 0 if start is None else start, _END if end is None else end
    return op.Slice(x, op.dims([first]), op.dims([last]), [dim], op.dims([step]))


@lowering(aten.select.int, aten.select_copy.int)
def select(op: Builder, x: ir.Value, dim: int, index: Dim) -> ir.Value:
    """select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)"""
    return op.Gather(x, op.const(index), axis=dim)


@lowering(aten.slice_backward.default)
def slice_backward(
    op: Builder, grad: ir.Value, input_sizes: Sequence[Dim], dim: int, start: Dim, end: Dim, step: Dim
) -> ir.Value:
    """slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, SymInt end, ...) -> Tensor

    The gradient stands at start, start + step, ... among zeros: spread by ``step``, then padded on both sides.
    """
    rank = len(input_sizes)
    dim %= rank
    size, length = input_sizes[dim], op.size(grad, dim)
    if isinstance(length, int) and length == 0:
        return op.Expand(op.const(0, op.result.dtype), op.dims(input_sizes))
    before = larger(op, 0, smaller(op, from_front(op, start, size), size))
    room = minus(op, size, before)
    if not isinstance(step, int) or step != 1:
        grad = _spread(op, grad, dim, length, step, room)
        length = smaller(op, times(op, length, step), room)
    return _pad(op, grad, rank, dim, before, minus(op, room, length))


def _spread(op: Builder, grad: ir.Value, dim: int, length: Dim, step: Dim, room: Dim) -> ir.Value:
    """Puts ``step - 1`` zeros after every element along ``dim``, as far as there is room."""
    rank = len(shape_of(grad)) + 1
    padded = _pad(op, op.Unsqueeze(grad, [dim + 1]), rank, dim + 1, 0, minus(op, step, 1))
    shape = [times(op, length, step) if i == dim else op.size(grad, i) for i in range(rank - 1)]
    return op.Slice(op.Reshape(padded, op.dims(shape), allowzero=1), [0], op.dims([room]), [dim])


def _pad(op: Builder, x: ir.Value, rank: int, dim: int, before: Dim, after: Dim) -> ir.Value:
    """Zeros on both sides of one dimension, given for all of them.

    Never by Pad's input ``axes``: ONNX Runtime's TransposeOptimizer reads the pads as if there were none (1.31).
    """
    pads: list[Dim] = [0] * (2 * rank)
    pads[dim], pads[dim + rank] = before, after
    return padded(op, x, pads, op.const(0, op.result.dtype))


@lowering(aten.select_backward.default)
def select_backward(op: Builder, grad: ir.Value, input_sizes: Sequence[Dim], dim: int, index: Dim) -> ir.Value:
    """select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) -> Tensor"""
    rank = len(input_sizes)
    dim %= rank
    size = input_sizes[dim]
    before = from_front(op, index, size)
    return _pad(op, op.Unsqueeze(grad, [dim]), rank, dim, before, minus(op, size, plus(op, before, 1)))


@lowering(aten.split.Tensor, aten.split_copy.Tensor)
def split(op: Builder, x: ir.Value, split_size: Dim, dim: int = 0) -> tuple[ir.Value, ...]:
    """split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]"""
    equal: list[Dim] = [split_size] * (len(op.result) - 1)
    return _split(op, x, [*equal, minus(op, op.size(x, dim), times(op, split_size, len(equal)))], dim)


@lowering(aten.split_with_sizes.default)
def split_with_sizes(op: Builder, x: ir.Value, split_sizes: Sequence[Dim], dim: int = 0) -> tuple[ir.Value, ...]:
    """split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]"""
    return _split(op, x, split_sizes, dim)


def _split(op: Builder, x: ir.Value, sizes: Sequence[Dim], dim: int) -> tuple[ir.Value, ...]:
    return (x,) if len(sizes) == 1 else tuple(op.Split(x, op.dims(sizes), axis=dim, _outputs=len(sizes)))


@lowering(aten.tril.default)
@in_int64
def tril(op: Builder, x: ir.Value, diagonal: Dim = 0) -> ir.Value:
    """tril(Tensor self, SymInt diagonal=0) -> Tensor"""
    return triangle(op, x, False, diagonal)


@lowering(aten.triu.default)
@in_int64
def triu(op: Builder, x: ir.Value, diagonal: Dim = 0) -> ir.Value:
    """triu(Tensor self, SymInt diagonal=0) -> Tensor"""
    return triangle(op, x, True, diagonal)
