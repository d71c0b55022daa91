"""Branches and loops whose course the data decide on: ONNX's If and Loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from dort_compare.lowering.branches import either
from dort_compare.lowering.builder import Builder
from dort_compare.lowering.loops import loop, loop_while
from dort_compare.lowering.ops.operands import only
from dort_compare.lowering.registry import lowering

higher_order = torch.ops.higher_order
Body = Callable[..., Sequence[ir.Value]]
"""Writes what a graph computes of its operands."""


@lowering(higher_order.cond)
def cond(op: Builder, condition: ir.Value, true: Body, false: Body, operands: Sequence[Any]) -> tuple[ir.Value, ...]:
    """cond(Tensor pred, GraphModule true, GraphModule false, Any[] operands) -> Tensor[]"""
    branches = (lambda body=body: _tensors(op, body(*operands)) for body in (true, false))
    return either(op, only(op, condition, torch.bool), *branches)


@lowering(higher_order.while_loop)
def while_loop(
    op: Builder, goes_on: Body, body: Body, carried: Sequence[Any], additional: Sequence[Any]
) -> tuple[ir.Value, ...]:
    """while_loop(GraphModule cond, GraphModule body, Any[] carried, Any[] additional) -> Any[]"""
    return _looped(op, goes_on, body, _tensors(op, carried), additional)[: len(carried)]


@lowering(higher_order.while_loop_stack_output)
def while_loop_stack_output(
    op: Builder, goes_on: Body, body: Body, carried: Sequence[Any], additional: Sequence[Any]
) -> tuple[ir.Value, ...]:
    """while_loop_stack_output(GraphModule cond, GraphModule body, Any[] carried, Any[] additional) -> Tensor[]

    What is carried after each step; without any step one row, of what is carried before.
    """
    before = _tensors(op, carried)
    after = _looped(op, goes_on, body, before, additional)[len(before) :]
    return tuple(_rows(op, op.Unsqueeze(first, [0]), rows) for first, rows in zip(before, after, strict=True))


@lowering(higher_order.scan)
def scan(
    op: Builder, combine: Body, init: Sequence[Any], xs: Sequence[ir.Value], additional: Sequence[Any]
) -> tuple[ir.Value | None, ...]:
    """scan(GraphModule combine, Any[] init, Any[] xs, Any[] additional) -> Any[]

    What is carried after the last row of ``xs``, and what comes beyond it of every row.
    """
    return _along(op, combine, _tensors(op, init), xs, additional)


@lowering(higher_order.map_impl)
def map_impl(
    op: Builder, function: Body, xs: Sequence[ir.Value], additional: Sequence[Any]
) -> tuple[ir.Value | None, ...]:
    """map_impl(GraphModule f, Any[] xs, Any[] pos_args) -> Any[]"""
    return _along(op, function, [], xs, additional)


def _along(
    op: Builder, body: Body, carried: Sequence[ir.Value], xs: Sequence[ir.Value], additional: Sequence[Any]
) -> tuple[ir.Value | None, ...]:
    """What is carried after the last row of ``xs``, and, stacked, what ``body`` returns beyond it."""
    returned: list[bool] = []

    def step(row: ir.Value, *before: ir.Value) -> list[ir.Value]:
        found = body(*before, *(op.Gather(x, row, axis=0) for x in xs), *additional)
        returned[:] = [value is not None for value in found]
        return _tensors(op, [value for value in found if value is not None])

    results = iter(loop(op, op.size(xs[0], 0), carried, step))
    return tuple(next(results) if there else None for there in returned)


def _looped(
    op: Builder, goes_on: Body, body: Body, carried: Sequence[ir.Value], additional: Sequence[Any]
) -> tuple[ir.Value, ...]:
    def going(*state: ir.Value) -> ir.Value:
        (goes,) = goes_on(*state, *additional)
        return only(op, goes, torch.bool)

    return loop_while(op, carried, going, lambda *state: _tensors(op, body(*state, *additional)))


def _rows(op: Builder, instead: ir.Value, rows: ir.Value) -> ir.Value:
    """The rows, or what stands for them where there are none."""
    count = op.Shape(rows, start=0, end=1)
    return op.Slice(op.Concat(instead, rows, axis=0), op.Min(count, [1]), [2**62], [0])


def _tensors(op: Builder, values: Sequence[Any]) -> list[ir.Value]:
    if not all(isinstance(value, ir.Value) for value in values):
        raise op.unsupported("a graph within it returns what is no tensor")
    return [op.Identity(value) for value in values]
