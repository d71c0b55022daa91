"""Conditions that a graph checks: whether each holds, as a value that the runtime reads."""

from __future__ import annotations

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.ops.operands import only
from dort_compare.lowering.registry import lowering

aten = torch.ops.aten


@lowering(aten._linalg_check_errors.default)
def is_complete(op: Builder, info: ir.Value, api_name: str, is_matrix: bool = False) -> ir.Value:
    """_linalg_check_errors(Tensor info, str api_name, *, bool is_matrix) -> ()"""
    return op.Identity(info)


@lowering(aten._assert_scalar.default, aten._assert_async.msg)
def holds(op: Builder, condition: ir.Value | bool | int | float, message: str) -> ir.Value:
    """_assert_scalar(Scalar self, str assert_msg) -> (), _assert_async.msg(Tensor self, str assert_msg) -> ()"""
    return only(op, op.const(condition, torch.bool), torch.bool)
