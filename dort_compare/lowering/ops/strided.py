"""Views by strides, for tensors whose elements fill one piece of memory in an order that torch traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
import torch

from dort_compare.layouts import inverse, is_contiguous
from dort_compare.lowering.builder import Builder
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import Dim, fake_of, is_empty

aten = torch.ops.aten
prims = torch.ops.prims


@dataclass(frozen=True)
class _Memory:
    """The elements of a tensor in the order of memory: ``flat`` is ``x`` permuted by ``order`` and flattened."""

    flat: ir.Value
    order: list[int]
    sizes: list[int]

    def read_back(self, op: Builder, flat: ir.Value) -> ir.Value:
        """The tensor whose elements in the order of memory are ``flat``."""
        permuted = op.Reshape(flat, op.dims([self.sizes[d] for d in self.order]))
        return permuted if _is_sorted(self.order) else op.Transpose(permuted, perm=[*inverse(self.order)])


def _memory(op: Builder, x: ir.Value) -> _Memory:
    """Raises UnsupportedGraphError where the strides that torch traced leave gaps, overlap or are symbolic."""
    fake = fake_of(x)
    sizes, strides, _ = (_known(op, ns) for ns in (fake.shape, fake.stride(), [fake.storage_offset()]))
    order = sorted(range(len(sizes)), key=lambda d: (-strides[d], d))
    expected = 1
    for d in reversed(order):
        if sizes[d] != 1 and strides[d] != expected:
            raise op.unsupported("strides over a tensor that does not fill its memory")
        expected *= sizes[d]
    permuted = x if _is_sorted(order) else op.Transpose(x, perm=order)
    return _Memory(op.Reshape(permuted, [-1]), order, sizes)


def _is_sorted(order: list[int]) -> bool:
    return order == list(range(len(order)))


def _first(op: Builder, x: ir.Value, size: Sequence[Dim], stride: Sequence[Dim], offset: Dim | None) -> int:
    """Where in the flat tensor the view begins.

    Raises UnsupportedGraphError where it reads memory around the tensor or is symbolic.
    """
    fake = fake_of(x)
    sizes, steps = _known(op, size), _known(op, stride)
    first = 0 if offset is None else _known(op, [offset])[0] - int(fake.storage_offset())
    last = first + sum((n - 1) * step for n, step in zip(sizes, steps, strict=True))
    if first < 0 or last >= fake.numel():
        raise op.unsupported("strides that read memory around the tensor")
    return first


def _known(op: Builder, sizes: Sequence[Dim | torch.SymInt]) -> list[int]:
    known = [n for n in sizes if isinstance(n, int)]
    if len(known) < len(sizes):
        raise op.unsupported("strides over symbolic sizes")
    return known


def _places(op: Builder, size: Sequence[int], stride: Sequence[int], first: int) -> ir.Value:
    """The positions in the flat tensor, in the shape of the view."""
    places = op.const(first)
    for d, (n, step) in enumerate(zip(size, stride, strict=True)):
        along = op.Mul(op.Range(op.const(0), op.const(n), op.const(1)), op.const(step))
        places = op.Add(places, op.Reshape(along, op.const([-1] + [1] * (len(size) - d - 1))))
    return places


@lowering(aten.as_strided.default, aten.as_strided_copy.default, prims.as_strided.default)
def as_strided(
    op: Builder, x: ir.Value, size: Sequence[int], stride: Sequence[int], storage_offset: Dim | None = None
) -> ir.Value:
    """as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)

    torch counts in the memory of ``self``, of which the traced strides tell how the elements stand in it.
    """
    memory = _memory(op, x)
    if is_empty(op.result):
        return op.Reshape(op.Slice(memory.flat, [0], [0]), op.dims(size), allowzero=1)
    first = _first(op, x, size, stride, storage_offset)
    if is_contiguous(size, stride):
        part = op.Slice(memory.flat, [first], [first + op.result.numel()], [0])
        return op.Reshape(part, op.dims(size))
    return op.Gather(memory.flat, _places(op, size, stride, first), axis=0)


@lowering(aten.as_strided_scatter.default, prims.as_strided_scatter.default)
def as_strided_scatter(
    op: Builder,
    x: ir.Value,
    src: ir.Value,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: Dim | None = None,
) -> ir.Value:
    """as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) ..."""
    memory = _memory(op, x)
    if is_empty(src):
        return x
    places = _places(op, size, stride, _first(op, x, size, stride, storage_offset))
    elements = op.Reshape(op.cast(src, op.result.dtype), [-1])
    return memory.read_back(op, op.ScatterElements(memory.flat, op.Reshape(places, [-1]), elements, axis=0))
