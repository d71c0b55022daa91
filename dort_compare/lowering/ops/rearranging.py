"""Elements in another order, repeated or in windows: flip, roll, repeat, unfold."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import in_float32, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import minus
from dort_compare.lowering.values import Dim, is_empty, shape_of

aten = torch.ops.aten
prims = torch.ops.prims
_BEGIN, _END = -(2**63), 2**63 - 1


@lowering(aten.flip.default, prims.rev.default)
def flip(op: Builder, x: ir.Value, dims: Sequence[int]) -> ir.Value:
    """flip(Tensor self, int[] dims) -> Tensor"""
    if not dims or not shape_of(x):
        return x
    count = len(dims)
    return op.Slice(x, [-1] * count, [_BEGIN] * count, list(dims), [-1] * count)


@lowering(aten.roll.default)
def roll(op: Builder, x: ir.Value, shifts: Sequence[Dim], dims: Sequence[int] = ()) -> ir.Value:
    """roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor

    Without dimensions the flat tensor is rolled.
    """
    shape = shape_of(x)
    if not shape or is_empty(x):
        return x
    if not dims:
        count = op.result.numel()
        flat = _rolled(op, op.Reshape(x, [-1]), 0, shifts[0], count if isinstance(count, int) else op.Size(x))
        return op.Reshape(flat, op.Shape(x))
    rolled = x
    for shift, dim in zip(shifts, dims, strict=True):
        rolled = _rolled(op, rolled, dim, shift, op.size(x, dim))
    return rolled


def _rolled(op: Builder, x: ir.Value, dim: int, shift: Dim, size: Dim) -> ir.Value:
    if isinstance(shift, int) and isinstance(size, int):
        cut = op.const([-shift % size])
    else:
        cut = op.Mod(op.Neg(op.dims([shift])), op.dims([size]))
    return op.Concat(op.Slice(x, cut, [_END], [dim]), op.Slice(x, [0], cut, [dim]), axis=dim)


@lowering(aten.repeat.default)
def repeat(op: Builder, x: ir.Value, repeats: Sequence[Dim]) -> ir.Value:
    """repeat(Tensor self, SymInt[] repeats) -> Tensor"""
    more = len(repeats) - len(shape_of(x))
    wide = op.Unsqueeze(x, list(range(more))) if more else x
    return op.Tile(wide, op.dims(repeats)) if repeats else x


@lowering(aten.unfold.default, aten.unfold_copy.default)
def unfold(op: Builder, x: ir.Value, dimension: int, size: int, step: int) -> ir.Value:
    """unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)

    Windows along one dimension; their elements become the last one.
    """
    rank = len(shape_of(x))
    if not rank:
        return op.Slice(op.Reshape(x, [1]), [0], [size], [0])
    dim = dimension % rank
    length = op.size(x, dim)
    if isinstance(length, int) and size and math.gcd(size, step) > 1:
        windows = _windows_of_blocks(op, x, dim, length, size, step)
    else:
        windows = op.Gather(x, _windows(op, length, size, step), axis=dim)
    return op.Transpose(windows, perm=[d for d in range(rank + 1) if d != dim + 1] + [dim + 1])


def _windows_of_blocks(op: Builder, x: ir.Value, dim: int, length: int, size: int, step: int) -> ir.Value:
    """[..., length, ...] -> [..., windows, size, ...], by the blocks that all windows are made of, which Gather copies
    at a time."""
    block = math.gcd(size, step)
    count = (length - size) // step + 1
    end = (count - 1) * step + size
    before, after = ([op.own_size(x, d) for d in dims] for dims in (range(dim), range(dim + 1, len(shape_of(x)))))
    blocks = op.Reshape(op.Slice(x, [0], [end], [dim]), op.dims([*before, end // block, block, *after]))
    picked = op.Gather(blocks, _windows(op, end // block, size // block, step // block), axis=dim)
    return op.Reshape(picked, op.dims([*before, count, size, *after]))


def _is_narrower(grad: ir.Value, sizes: Sequence[Dim]) -> bool:
    """Whether torch's kernel repeats ``grad`` along a dimension, as `istft` has it do with windows."""
    assert grad.shape is not None
    return any(own == 1 and n != 1 for own, n in zip(grad.shape, sizes, strict=False) if isinstance(own, int))


def _windows(op: Builder, length: Dim, size: int, step: int) -> ir.Value:
    """The indices of the elements of all windows: window, place in it."""
    end = minus(op, length, size - 1)
    firsts = op.Range(op.const(0), op.const(end), op.const(step))
    return op.Add(op.Unsqueeze(firsts, [1]), op.Range(op.const(0), op.const(size), op.const(1)))


@lowering(aten.unfold_backward.default)
@in_float32
def unfold_backward(
    op: Builder, grad: ir.Value, input_sizes: Sequence[Dim], dim: int, size: int, step: int
) -> ir.Value:
    """unfold_backward(Tensor grad_in, SymInt[] input_sizes, int dim, int size, int step) -> Tensor

    Each element gets the sum of the gradients of the windows that hold it.
    """
    rank = len(input_sizes)
    zeros = op.Expand(op.const(0, opmath(op.result.dtype)), op.dims(input_sizes))
    if is_empty(grad):
        return zeros
    if not rank:
        return op.Reshape(grad, op.const([], torch.int64))
    dim %= rank
    windows = [op.own_size(grad, dim) if d == dim else n for d, n in enumerate(input_sizes)]
    if _is_narrower(grad, windows):
        grad = op.Expand(grad, op.dims([*windows, size]))
    inner = op.Transpose(grad, perm=[*range(dim + 1), rank, *range(dim + 1, rank)])
    sizes = [-1 if d == dim else n for d, n in enumerate(input_sizes)]
    flat = op.Reshape(inner, op.dims(sizes))
    places = op.Reshape(_windows(op, input_sizes[dim], size, step), op.const([-1] + [1] * (rank - dim - 1)))
    return op.ScatterElements(zeros, op.Expand(places, op.Shape(flat)), flat, axis=dim, reduction="add")
