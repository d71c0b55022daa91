"""Branches and loops whose course the data decide on: ONNX's If and Loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.loops import loop_while
from dort_compare.lowering.registry import lowering

higher_order = torch.ops.higher_order
Body = Callable[..., Sequence[ir.Value]]
"""Writes what a graph computes of its operands."""


@lowering(higher_order.cond)
def cond(op: Builder, condition: ir.Value, true: Body, false: Body, operands: Sequence[Any]) -> tuple[ir.Value, ...]:
    """cond(Tensor pred, GraphModule true, GraphModule false, Any[] operands) -> Tensor[]"""
    branches = [_branch(op, body, operands) for body in (true, false)]
    first = branches[0].outputs
    results = op.If(_one(op, condition), then_branch=branches[0], else_branch=branches[1], _outputs=len(first))
    results = [results] if len(first) == 1 else results
    for result, value in zip(results, first, strict=True):
        result.type = value.type
    return tuple(results)


def _branch(op: Builder, body: Body, operands: Sequence[Any]) -> ir.Graph:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": op.opset}, name=op.new_name("branch"))
    with op.writing_to(graph):
        graph.outputs.extend(_tensors(op, body(*operands)))
    return graph


@lowering(higher_order.while_loop)
def while_loop(
    op: Builder, goes_on: Body, body: Body, carried: Sequence[Any], additional: Sequence[Any]
) -> tuple[ir.Value, ...]:
    """while_loop(GraphModule cond, GraphModule body, Any[] carried, Any[] additional) -> Any[]"""

    def going(*state: ir.Value) -> ir.Value:
        return _one(op, *goes_on(*state, *additional))

    return loop_while(op, _tensors(op, carried), going, lambda *state: _tensors(op, body(*state, *additional)))


def _one(op: Builder, condition: ir.Value) -> ir.Value:
    """A condition of one element, without dimensions."""
    return op.Reshape(condition, op.const([], torch.int64))


def _tensors(op: Builder, values: Sequence[Any]) -> list[ir.Value]:
    if not all(isinstance(value, ir.Value) for value in values):
        raise op.unsupported("a graph within it returns what is no tensor")
    return [op.Identity(value) for value in values]
