"""Rounding to integers, which leaves integers as they are."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import in_float32
from dort_compare.lowering.registry import lowering
from dort_compare.lowering.values import is_floating

aten = torch.ops.aten
prims = torch.ops.prims


def truncated(op: Builder, x: ir.Value) -> ir.Value:
    """A floating x rounded towards zero, where ONNX has no operator for it.

    -0 stays so, but for the second choice of a Where: ONNX Runtime makes 0 of it in the first.
    """
    return op.Where(op.Greater(x, 0), op.Floor(x), op.Ceil(x))


def _rounding(rounded: Callable[[Builder, ir.Value], ir.Value]) -> Callable[[Builder, ir.Value], ir.Value]:
    @in_float32
    def lowered(op: Builder, x: ir.Value) -> ir.Value:
        return rounded(op, x) if is_floating(x) else x

    return lowered


for _targets, _rounded in {
    (aten.ceil.default, prims.ceil.default): lambda op, x: op.Ceil(x),
    (aten.floor.default, prims.floor.default): lambda op, x: op.Floor(x),
    (aten.round.default, prims.round.default): lambda op, x: op.Round(x),
    (aten.trunc.default, prims.trunc.default): truncated,
}.items():
    lowering(*_targets)(_rounding(_rounded))


@lowering(aten.round.decimals)
@in_float32
def round_decimals(op: Builder, x: ir.Value, decimals: int) -> ir.Value:
    """round.decimals(Tensor self, *, int decimals) -> Tensor

    Halves to even, scaled by a power of ten.
    """
    if not is_floating(x):
        return x
    power = 10.0 ** abs(decimals)
    if decimals < 0:
        return op.Mul(op.Round(op.Div(x, power)), power)
    return op.Div(op.Round(op.Mul(x, power)), power)


@lowering(aten.frac.default)
@in_float32
def frac(op: Builder, x: ir.Value) -> ir.Value:
    """frac(Tensor self) -> Tensor

    x - trunc(x)
    """
    return op.Sub(x, truncated(op, x))
