"""Elements picked by tensors of indices."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.masks import without_masks
from dort_compare.lowering.ops.operands import refusing_negative, same_shape
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import behind_one_another
from dort_compare.lowering.values import is_empty, shape_of

aten = torch.ops.aten


@lowering(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(op: Builder, x: ir.Value, indices: Sequence[ir.Value | None]) -> ir.Value:
    """index.Tensor(Tensor self, Tensor?[] indices) -> Tensor

    The indexed dimensions go to the front, GatherND picks there, and the picked dimensions return to where the first
    index stood, or stay in front where the indices are not neighbours (numpy's and torch's rule).
    """
    indices = without_masks(op, indices)
    dims = [d for d, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    rank = len(shape_of(x))
    if len(dims) == 1:
        return _picked(op, x, dims[0], given[0])
    rest = [d for d in range(rank) if d not in dims]
    front = x if dims == list(range(len(dims))) else op.Transpose(x, perm=dims + rest)
    picked = op.GatherND(front, joined(op, given))
    return _returned(op, picked, dims, picked_rank=op.result.ndim - len(rest), rank=op.result.ndim)


def joined(op: Builder, indices: list[ir.Value]) -> ir.Value:
    """The indices, broadcast against each other, as one int64 tensor with the coordinates last."""
    wide = [op.cast(i, torch.int64) for i in indices]
    if not _same_static_shape(indices):
        total = wide[0]
        for other in wide[1:]:
            total = op.Add(total, other)
        shape = op.Shape(total)
        wide = [op.Expand(i, shape) for i in wide]
    return op.Concat(*[op.Unsqueeze(i, [-1]) for i in wide], axis=-1)


def _same_static_shape(values: list[ir.Value]) -> bool:
    shapes = [value.shape for value in values]
    return all(shape is not None and shape.is_static() and shape == shapes[0] for shape in shapes)


def are_neighbours(dims: Sequence[int]) -> bool:
    """Whether indexed dimensions follow one another; what indices that do not pick goes to the front."""
    return list(dims) == list(range(dims[0], dims[0] + len(dims)))


def _returned(op: Builder, picked: ir.Value, dims: list[int], picked_rank: int, rank: int) -> ir.Value:
    first = dims[0]
    if first == 0 or not are_neighbours(dims):
        return picked
    moved = list(range(picked_rank))
    others = list(range(picked_rank, rank))
    return op.Transpose(picked, perm=others[:first] + moved + others[first:])


@lowering(aten.index_select.default)
def index_select(op: Builder, x: ir.Value, dim: int, index: ir.Value) -> ir.Value:
    """index_select(Tensor self, int dim, Tensor index) -> Tensor"""
    shape = shape_of(x)
    if not shape:
        return x
    picked = index if shape_of(index) else op.Unsqueeze(index, [0])
    return _picked(op, x, dim, refusing_negative(op, picked))


def _picked(op: Builder, x: ir.Value, dim: int, places: ir.Value) -> ir.Value:
    """Slices of ``x``: by GatherElements where those are single elements of rows, each of which ONNX Runtime's Gather
    copies by itself on the CPU."""
    rank = len(shape_of(x))
    are_elements = op.result.ndim == rank > 1 and dim % rank == rank - 1
    if op.on_cuda or not are_elements or is_empty(op.result):
        return op.Gather(x, places, axis=dim)
    rows = op.Expand(places, behind_one_another(op, op.Shape(x, end=-1), op.Shape(places)))
    return op.GatherElements(x, rows, axis=-1)


@lowering(aten.take.default)
def take(op: Builder, x: ir.Value, index: ir.Value) -> ir.Value:
    """take(Tensor self, Tensor index) -> Tensor"""
    return op.Gather(op.Reshape(x, [-1]), index, axis=0)


@lowering(aten.gather.default)
def gather(op: Builder, x: ir.Value, dim: int, index: ir.Value, sparse_grad: bool = False) -> ir.Value:
    """gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor

    Whole slices are picked where the index repeats the same for all elements of one, as the gradients of sums over the
    edges of a graph do.
    """
    if is_empty(op.result):
        return op.Reshape(op.Slice(op.Reshape(x, [-1]), [0], [0]), op.Shape(index), allowzero=1)
    if (slices := _slices(x, dim, index)) is not None:
        return _picked(op, x, dim, refusing_negative(op, op.Reshape(slices, [-1])))
    places = refusing_negative(op, index)
    if shape_of(x) and shape_of(index):
        # ONNX's evaluator errs at -1
        return op.GatherElements(x, op.cast(places, torch.int64), axis=dim % len(shape_of(x)))
    picked = op.Gather(op.Reshape(x, [-1]), op.Reshape(places, [-1]), axis=0)
    return op.Reshape(picked, op.Shape(index))


def _slices(x: ir.Value, dim: int, index: ir.Value) -> ir.Value | None:
    """The indices that ``index`` repeats for all elements of a slice of ``x``; None where it does not."""
    made = index.producer()
    repeated = made.inputs[0] if made is not None and made.op_type == "Expand" else None
    if repeated is None or "val" not in repeated.meta or not shape_of(x):
        return None
    sizes = shape_of(index)
    along = dim % len(sizes)
    alone = [size if d == along else 1 for d, size in enumerate(sizes)]
    whole = [sizes[d] if d == along else size for d, size in enumerate(shape_of(x))]
    return repeated if same_shape(shape_of(repeated), alone) and same_shape(sizes, whole) else None
