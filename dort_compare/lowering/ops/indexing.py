"""Elements picked by tensors of indices."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder, fake_of, shape_of
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten


@lowering(aten.index.Tensor)
def index(op: Builder, x: ir.Value, indices: Sequence[ir.Value | None]) -> ir.Value:
    """index.Tensor(Tensor self, Tensor?[] indices) -> Tensor

    The indexed dimensions go to the front, GatherND picks there, and the picked dimensions return to where the first
    index stood, or stay in front where the indices are not neighbours (numpy's and torch's rule).
    """
    if any(i is not None and fake_of(i).dtype in (torch.bool, torch.uint8) for i in indices):
        raise op.unsupported("a mask as index: the shape of its result depends on values")
    dims = [d for d, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    rank = len(shape_of(x))
    if len(dims) == 1:
        return op.Gather(x, given[0], axis=dims[0])
    rest = [d for d in range(rank) if d not in dims]
    front = x if dims == list(range(len(dims))) else op.Transpose(x, perm=dims + rest)
    picked = op.GatherND(front, _joined(op, given))
    return _returned(op, picked, dims, picked_rank=op.result.ndim - len(rest), rank=op.result.ndim)


def _joined(op: Builder, indices: list[ir.Value]) -> ir.Value:
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
    shapes = [shape_of(value) for value in values]
    return all(isinstance(n, int) for shape in shapes for n in shape) and all(s == shapes[0] for s in shapes)


def _returned(op: Builder, picked: ir.Value, dims: list[int], picked_rank: int, rank: int) -> ir.Value:
    first = dims[0]
    neighbours = dims == list(range(first, first + len(dims)))
    if first == 0 or not neighbours:
        return picked
    moved = list(range(picked_rank))
    others = list(range(picked_rank, rank))
    return op.Transpose(picked, perm=others[:first] + moved + others[first:])
