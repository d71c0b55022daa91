"""Elements and slices written where tensors of indices say: index_put and its like."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.indexing import are_neighbours, joined
from dort_compare.lowering.ops.masks import is_mask, without_masks
from dort_compare.lowering.ops.operands import Number, Operand, chosen, refusing_negative
from dort_compare.lowering.ops.scattering import reduced_into, scattered
from dort_compare.lowering.precision import in_float32, raise_half
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.sizes import behind_one_another, from_front, product
from dort_compare.lowering.values import Dim, dtype_of, is_empty, shape_of

aten = torch.ops.aten


@lowering(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(
    op: Builder, x: ir.Value, indices: Sequence[ir.Value | None], values: ir.Value, accumulate: bool = False
) -> ir.Value:
    """index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor

    Where a mask selects elements for values that are the same for all, it chooses. Indices of the first dimensions
    write whole slices with ScatterND; every other write, and every sum, goes element by element with ScatterElements.
    """
    if is_empty(x) or any(i is not None and is_empty(i) for i in indices):
        return x
    if accumulate:
        return op.cast(_put(op, raise_half(op, x), indices, raise_half(op, values), "add"), op.result.dtype)
    mask = _only_mask(indices)
    if mask is not None:
        dim = next(d for d, i in enumerate(indices) if i is not None)
        behind = len(shape_of(x)) - dim - len(shape_of(mask))
        if _is_same_for_all(values, behind):
            return _put_by_mask(op, x, mask, behind, values)
    return _put(op, x, indices, values, "none")


def _only_mask(indices: Sequence[ir.Value | None]) -> ir.Value | None:
    given = [i for i in indices if i is not None]
    return given[0] if len(given) == 1 and is_mask(given[0]) and shape_of(given[0]) else None


def _is_same_for_all(values: ir.Value, behind: int) -> bool:
    """Whether values for x[..., mask, ...] have size 1 where they could differ from one selected place to the next."""
    shape = shape_of(values)
    return len(shape) <= behind or (isinstance(shape[-behind - 1], int) and shape[-behind - 1] == 1)


def _put_by_mask(op: Builder, x: ir.Value, mask: ir.Value, behind: int, values: ir.Value) -> ir.Value:
    mask_rank = len(shape_of(mask))
    place = len(shape_of(values)) - behind
    if place > 0 and mask_rank > 1:
        values = op.Unsqueeze(values, list(range(place, place + mask_rank - 1)))
    mask = _with_ones(op, op.cast(mask, torch.bool), mask_rank, behind)
    return chosen(op, mask, values, x)


def _with_ones(op: Builder, x: ir.Value, rank: int, behind: int) -> ir.Value:
    """``x`` with more dimensions of size 1 behind its own."""
    return op.Unsqueeze(x, list(range(rank, rank + behind))) if behind else x


def _put(op: Builder, x: ir.Value, indices: Sequence[ir.Value | None], values: ir.Value, reduction: str) -> ir.Value:
    unmasked = without_masks(op, indices)
    dims = [d for d, i in enumerate(unmasked) if i is not None]
    given = [i for i in unmasked if i is not None]
    if reduction == "none" and dims == list(range(len(dims))):
        return _put_slices(op, x, given, values)
    if len(given) == 1:
        return _put_along(op, x, dims[0], given[0], values, reduction)
    places = _places(op, x, dims, given)
    source = op.Reshape(op.Expand(values, op.Shape(places)), [-1])
    flat = scattered(op, op.Reshape(x, [-1]), 0, op.Reshape(places, [-1]), source, reduction)
    return op.Reshape(flat, op.Shape(x))


def _put_slices(op: Builder, x: ir.Value, indices: list[ir.Value], values: ir.Value) -> ir.Value:
    """Indices of the first dimensions; ScatterND is safe where nothing is summed."""
    coordinates = joined(op, indices)
    count, rank = len(indices), len(shape_of(x))
    shape = op.Shape(coordinates, start=0, end=-1)
    if count < rank:
        shape = behind_one_another(op, shape, op.Shape(x, start=count))
    return op.ScatterND(x, coordinates, op.Expand(values, shape))


def _put_along(op: Builder, x: ir.Value, dim: int, index: ir.Value, values: ir.Value, reduction: str) -> ir.Value:
    """One index, of any shape, along one dimension."""
    sizes = [op.size(x, d) for d in range(len(shape_of(x)))]
    before, after = op.dims(sizes[:dim]), op.dims(sizes[dim + 1 :])
    source = op.Expand(values, behind_one_another(op, before, op.Shape(index), after))
    line = op.Reshape(index, [-1])
    shape = behind_one_another(op, before, op.Shape(line), after)
    targets = op.Expand(_with_ones(op, line, 1, len(sizes) - dim - 1), shape)
    return scattered(op, x, dim, targets, op.Reshape(source, shape), reduction)


def _places(op: Builder, x: ir.Value, dims: list[int], indices: list[ir.Value]) -> ir.Value:
    """Where the elements of x[..., i, ..., j, ...] stand in the flat ``x``, in the shape of that result.

    An index that is out of range along its own dimension is out of range there.
    """
    rank = len(shape_of(x))
    sizes = [op.size(x, d) for d in range(rank)]
    strides = [product(op, sizes[d + 1 :]) for d in range(rank)]
    rest = [d for d in range(rank) if d not in dims]
    last = dims[0] if are_neighbours(dims) else 0
    behind = len([d for d in rest if d >= last])
    picked_rank = max(len(i.shape or ()) for i in indices)
    terms = []
    for d, index in zip(dims, indices, strict=True):
        place = op.const(from_front(op, op.cast(index, torch.int64), sizes[d]))
        is_within = op.And(op.GreaterOrEqual(place, 0), op.Less(place, op.const(sizes[d])))
        term = op.Where(is_within, _times(op, place, strides[d]), op.Size(x))
        terms.append(_with_ones(op, term, len(index.shape or ()), behind))
    for i, d in enumerate(rest):
        count = op.Range(op.const(0), op.const(sizes[d]), op.const(1))
        after = len(rest) - i - 1 + (picked_rank if d < last else 0)
        terms.append(_with_ones(op, _times(op, count, strides[d]), 1, after))
    total = terms[0]
    for term in terms[1:]:
        total = op.Add(total, term)
    return total


def _times(op: Builder, place: ir.Value, stride: Dim) -> ir.Value:
    return place if isinstance(stride, int) and stride == 1 else op.Mul(place, op.const(stride))


@lowering(aten.put.default)
def put(op: Builder, x: ir.Value, index: ir.Value, source: ir.Value, accumulate: bool = False) -> ir.Value:
    """put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor"""
    if is_empty(x, index):
        return x
    if accumulate:
        x, source = raise_half(op, x), raise_half(op, source)
    flat, places, elements = (op.Reshape(each, [-1]) for each in (x, index, source))
    written = scattered(op, flat, 0, places, elements, "add" if accumulate else "none")
    return op.cast(op.Reshape(written, op.Shape(x)), op.result.dtype)


# A vector of indices along one dimension.


@lowering(aten.index_add.default)
@in_float32
def index_add(op: Builder, x: ir.Value, dim: int, index: ir.Value, source: ir.Value, alpha: Number = 1) -> ir.Value:
    """index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor"""
    if is_empty(x, index):
        return x
    if alpha != 1:
        source = _scaled(op, source, op.const(alpha, dtype_of(x)))
    shape = _slices_shape(op, x, dim, index)
    targets = _along(op, x, dim, refusing_negative(op, index), shape)
    return scattered(op, x, dim, targets, op.Reshape(source, shape, allowzero=1), "add")


def _scaled(op: Builder, source: ir.Value, alpha: ir.Value) -> ir.Value:
    return op.And(source, alpha) if source.dtype == ir.DataType.BOOL else op.Mul(source, alpha)


@lowering(aten.index_copy.default)
def index_copy(op: Builder, x: ir.Value, dim: int, index: ir.Value, source: ir.Value) -> ir.Value:
    """index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor"""
    if is_empty(x, index):
        return x
    shape = _slices_shape(op, x, dim, index)
    targets = _along(op, x, dim, refusing_negative(op, index), shape)
    return scattered(op, x, dim, targets, op.Reshape(source, shape, allowzero=1))


@lowering(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(op: Builder, x: ir.Value, dim: int, index: ir.Value, value: Operand) -> ir.Value:
    """index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor"""
    if is_empty(x, index):
        return x
    dtype = op.result.dtype
    shape = _slices_shape(op, x, dim, index)
    number = op.cast(value, dtype) if isinstance(value, ir.Value) else op.const(value, dtype)
    return scattered(op, x, dim, _along(op, x, dim, index, shape), op.Expand(number, shape))


@lowering(aten.index_reduce.default)
@in_float32
def index_reduce(
    op: Builder,
    x: ir.Value,
    dim: int,
    index: ir.Value,
    source: ir.Value,
    reduce: str,
    include_self: bool = True,
) -> ir.Value:
    """index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) ..."""
    if is_empty(x, index):
        return x
    shape = _slices_shape(op, x, dim, index)
    targets = _along(op, x, dim, index, shape)
    return reduced_into(op, x, dim, targets, op.Reshape(source, shape, allowzero=1), reduce, include_self)


def _slices_shape(op: Builder, x: ir.Value, dim: int, index: ir.Value) -> ir.Value:
    """The shape of x.index_select(dim, index)."""
    rank = len(shape_of(x))
    sizes = [op.size(x, d) for d in range(rank)]
    if rank:
        sizes[dim] = op.size(index, 0) if shape_of(index) else 1
    return op.dims(sizes)


def _along(op: Builder, x: ir.Value, dim: int, index: ir.Value, shape: ir.Value) -> ir.Value:
    """A vector of indices as one index for each element."""
    rank = len(shape_of(x))
    ones = [1] * rank
    if rank:
        ones[dim] = -1
    return op.Expand(op.Reshape(index, op.const(ones, torch.int64)), shape)
