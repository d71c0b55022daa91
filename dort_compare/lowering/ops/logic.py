"""Logical operators, bitwise ones and shifts."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import Operand, promoted
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten
prims = torch.ops.prims


def _logic(operator: str, bitwise: str | None) -> Callable[..., ir.Value]:
    """On bools the logical operator; on integers the bitwise one, or their truth values where there is none."""

    def lowered(op: Builder, *operands: Operand) -> ir.Value:
        if op.result.dtype == torch.bool:
            return getattr(op, operator)(*promoted(op, operands, torch.bool))
        return getattr(op, str(bitwise))(*promoted(op, operands, op.result.dtype))

    return lowered


for _name, _operator, _bitwise in [
    ("bitwise_and", "And", "BitwiseAnd"),
    ("bitwise_or", "Or", "BitwiseOr"),
    ("bitwise_xor", "Xor", "BitwiseXor"),
]:
    _packet = getattr(aten, _name)
    _targets = (_packet.Tensor, _packet.Scalar, _packet.Scalar_Tensor, getattr(prims, _name).default)
    lowering(*_targets)(_logic(_operator, _bitwise))

lowering(aten.bitwise_not.default, prims.bitwise_not.default)(_logic("Not", "BitwiseNot"))

for _target, _operator in {
    aten.logical_and.default: "And",
    aten.logical_or.default: "Or",
    aten.logical_xor.default: "Xor",
    aten.logical_not.default: "Not",
}.items():
    lowering(_target)(_logic(_operator, None))


@lowering(
    aten.bitwise_left_shift.Tensor,
    aten.bitwise_left_shift.Tensor_Scalar,
    aten.bitwise_left_shift.Scalar_Tensor,
    aten.__lshift__.Tensor,
    aten.__lshift__.Scalar,
    prims.shift_left.default,
)
def left_shift(op: Builder, x: Operand, bits: Operand) -> ir.Value:
    """bitwise_left_shift.Tensor(Tensor self, Tensor other) -> Tensor

    0 where the shift is negative or no narrower than the dtype.
    """
    dtype = op.result.dtype
    number, by = promoted(op, promoted(op, (x, bits), dtype), torch.int64)
    outside = _outside(op, by, torch.iinfo(dtype).bits)
    shifted = _bit_shift(op, number, op.Where(outside, 0, by), "LEFT")
    return op.cast(op.Where(outside, 0, shifted), dtype)


@lowering(
    aten.bitwise_right_shift.Tensor,
    aten.bitwise_right_shift.Tensor_Scalar,
    aten.bitwise_right_shift.Scalar_Tensor,
    aten.__rshift__.Tensor,
    aten.__rshift__.Scalar,
    prims.shift_right_arithmetic.default,
)
def right_shift(op: Builder, x: Operand, bits: Operand) -> ir.Value:
    """bitwise_right_shift.Tensor(Tensor self, Tensor other) -> Tensor

    Copies of the sign come in from the left; nothing else is left where the shift is negative or too wide.
    """
    dtype = op.result.dtype
    number, by = promoted(op, promoted(op, (x, bits), dtype), torch.int64)
    sign = op.Where(op.Less(number, 0), op.const(-1), op.const(0))
    by = op.Where(_outside(op, by, 64), 63, by)
    return op.cast(op.BitwiseXor(_bit_shift(op, op.BitwiseXor(number, sign), by, "RIGHT"), sign), dtype)


def _outside(op: Builder, bits: ir.Value, width: int) -> ir.Value:
    return op.Or(op.Less(bits, 0), op.GreaterOrEqual(bits, width))


def _bit_shift(op: Builder, x: ir.Value, bits: ir.Value, direction: str) -> ir.Value:
    """On int64; ONNX shifts unsigned integers alone."""
    x, bits = op.cast(x, torch.uint64), op.cast(bits, torch.uint64)
    return op.cast(op.BitShift(x, bits, direction=direction), torch.int64)
