"""ONNX's Loop: nodes that are computed again and again on tensors that they hand on to themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import from_torch_dtype

from dort_compare.lowering.builder import Builder, Dim

Body = Callable[..., Sequence[ir.Value]]


def loop(op: Builder, count: Dim, state: Sequence[ir.Value], body: Body) -> tuple[ir.Value, ...]:
    """``state`` after ``count`` rounds of ``state = body(i, *state)``, where ``i`` is a 0-d int64 value, 0 at first.

    The state keeps its dtypes and shapes. What else ``body`` reads of the values around it, it may just read.
    """
    number, going_on = _input(op, torch.int64), _input(op, torch.bool)
    before = [ir.Value(name=op.new_name("state"), type=value.type, shape=value.shape) for value in state]
    graph = ir.Graph([number, going_on, *before], [], nodes=[], opset_imports={"": op.opset}, name=op.new_name("body"))
    with op.writing_to(graph):
        after = body(number, *before)
        graph.outputs.extend(op.Identity(value) for value in (going_on, *after))
    results = op.Loop(op.const(count), None, *state, body=graph, _outputs=len(state))
    results = [results] if len(state) == 1 else results
    for result, value in zip(results, state, strict=True):
        result.type, result.shape = value.type, value.shape
    return tuple(results)


def _input(op: Builder, dtype: torch.dtype) -> ir.Value:
    return ir.Value(name=op.new_name("round"), type=ir.TensorType(from_torch_dtype(dtype)), shape=ir.Shape([]))
