"""Borders around the last dimensions: constant, mirrored or repeated; and the gradients of these."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.padded import padded
from dort_compare.lowering.precision import in_float32, in_int64, opmath
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import Dim, shape_of
from dort_compare.lowering.windows import Windows, window_sums

aten = torch.ops.aten


@lowering(aten.constant_pad_nd.default)
@in_int64
def constant_pad_nd(op: Builder, x: ir.Value, pad: Sequence[Dim], value: float | int | bool = 0) -> ir.Value:
    """constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor

    Negative pads cut, as ONNX's do. ``pad`` begins with the last dimension, ONNX's pads with the first.
    """
    if not pad:
        return x
    untouched: list[Dim] = [0] * (len(shape_of(x)) - len(pad) // 2)
    before, after = list(pad[-2::-2]), list(pad[::-2])
    number = op.const(value, op.result.dtype)
    return padded(op, x, [*untouched, *before, *untouched, *after], op.cast(number, _dtype(x)))


def _dtype(x: ir.Value) -> torch.dtype:
    assert x.dtype is not None
    return ir.tensor_adapters.to_torch_dtype(x.dtype)


def _bordered(op: Builder, x: ir.Value, padding: Sequence[int], mode: str) -> ir.Value:
    """By ONNX Runtime's Pad, which takes no negative pads in these modes; else dimension after dimension, in parts, for
    Gather picks the elements of rows one by one."""
    if min(padding) >= 0 and _dtype(x) in (torch.float32, torch.float64) and not op.on_cuda:
        untouched = [0] * (len(shape_of(x)) - len(padding) // 2)
        return op.Pad(x, [*untouched, *padding[-2::-2], *untouched, *padding[::-2]], mode=mode)
    borders = [(d, _size(op, x, d), before, after) for d, before, after in _borders(len(shape_of(x)), padding)]
    for d, size, before, after in borders:
        parts = [op.Slice(x, [max(-before, 0)], [size - max(-after, 0)], [d])]
        if before > 0:
            parts.insert(0, _mirrored(op, x, d, before, 0) if mode == "reflect" else _repeated(op, x, d, 0, before))
        if after > 0:
            end = -2 - after
            parts.append(_mirrored(op, x, d, -2, end) if mode == "reflect" else _repeated(op, x, d, size - 1, after))
        x = op.Concat(*parts, axis=d)
    return x


def _mirrored(op: Builder, x: ir.Value, d: int, start: int, end: int) -> ir.Value:
    """What lies from a place of a dimension back to another, which is left out."""
    return op.Slice(x, [start], [end], [d], [-1])


def _repeated(op: Builder, x: ir.Value, d: int, place: int, times: int) -> ir.Value:
    """What lies at a place of a dimension, as often as asked."""
    assert x.shape is not None
    return op.Tile(op.Slice(x, [place], [place + 1], [d]), [times if i == d else 1 for i in range(len(x.shape))])


def _borders(rank: int, padding: Sequence[int]) -> list[tuple[int, int, int]]:
    """The padded dimensions, from the last on, each with what it gets before and after."""
    pairs = zip(range(rank - 1, -1, -1), padding[::2], padding[1::2], strict=False)
    return [(d, before, after) for d, before, after in pairs if before or after]


def _bordered_backward(op: Builder, grad: ir.Value, x: ir.Value, padding: Sequence[int], mode: str) -> ir.Value:
    """Each element is given the sum of the gradients of all places to which it was copied."""
    rank, dtype = len(shape_of(x)), opmath(op.result.dtype)
    for d, places in _places(op, x, padding, mode):
        copies = Windows.weighted(places.unsqueeze(1), torch.ones(len(places), 1))
        grad = window_sums(op, grad, d, rank, copies.transposed(_size(op, x, d)), dtype)
    return grad


def _places(op: Builder, x: ir.Value, padding: Sequence[int], mode: str) -> list[tuple[int, torch.Tensor]]:
    """For each padded dimension, which element stands at each place of the result."""
    rank = len(shape_of(x))
    return [(d, _source(_size(op, x, d), before, after, mode)) for d, before, after in _borders(rank, padding)]


def _size(op: Builder, x: ir.Value, d: int) -> int:
    size = shape_of(x)[d]
    if not isinstance(size, int):
        raise op.unsupported("a border around a symbolic size")
    return size


def _source(size: int, before: int, after: int, mode: str) -> torch.Tensor:
    places = torch.arange(-before, size + after)
    if mode == "reflect":
        return (size - 1) - (places.abs() - (size - 1)).abs()
    return places.clamp(0, size - 1)


@lowering(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def reflection_pad(op: Builder, x: ir.Value, padding: Sequence[int]) -> ir.Value:
    """reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor"""
    return _bordered(op, x, padding, "reflect")


@lowering(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def replication_pad(op: Builder, x: ir.Value, padding: Sequence[int]) -> ir.Value:
    """replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor"""
    return _bordered(op, x, padding, "edge")


@lowering(
    aten.reflection_pad1d_backward.default,
    aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default,
)
@in_float32
def reflection_pad_backward(op: Builder, grad: ir.Value, x: ir.Value, padding: Sequence[int]) -> ir.Value:
    """reflection_pad2d_backward(Tensor grad_output, Tensor self, SymInt[4] padding) -> Tensor"""
    return _bordered_backward(op, grad, x, padding, "reflect")


@lowering(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
@in_float32
def replication_pad_backward(op: Builder, grad: ir.Value, x: ir.Value, padding: Sequence[int]) -> ir.Value:
    """replication_pad2d_backward(Tensor grad_output, Tensor self, SymInt[4] padding) -> Tensor"""
    return _bordered_backward(op, grad, x, padding, "edge")
