"""ONNX's Loop: nodes that are computed again and again on values that they hand on to themselves.

What else the body of a loop reads of the values around it, it may just read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import from_torch_dtype

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.values import Dim, is_empty

State = Sequence[ir.Value]
Step = Callable[..., State]
"""From the number of rounds done, a 0-d int64, and the state: the state after one more round."""
Going = Callable[..., ir.Value]
"""From the same: which elements go on."""


def loop(op: Builder, count: Dim, state: State, step: Step, *, resizes: bool = False) -> tuple[ir.Value, ...]:
    """The state after ``count`` rounds and, stacked, what ``step`` returned beyond the state in each.

    The state keeps its dtypes and, unless it ``resizes``, its shapes.
    """
    body: Step = lambda rounds, asked, *before: (asked, *step(rounds, *before))  # noqa: E731
    # ONNX's reference evaluator takes a condition that is left out for one that does not hold
    return _loop(
        op,
        op.const(count),
        op.const(True, torch.bool),
        state,
        [None if resizes else value.shape for value in state],
        body,
    )


def repeated(op: Builder, state: State, going: Going, step: Step) -> tuple[ir.Value, ...]:
    """The state in which every element has stopped, and stays. It keeps its dtypes, its shapes may broadcast.

    Of no elements one round, which broadcasts the shapes: ONNX Runtime's CUDA provider cannot ask whether any goes on.
    """

    def one_round(rounds: ir.Value, *before: ir.Value) -> tuple[ir.Value, list[ir.Value]]:
        goes = going(rounds, *before)
        return goes, [op.Where(goes, new, old) for new, old in zip(step(rounds, *before), before, strict=True)]

    def body(rounds: ir.Value, _: ir.Value, *before: ir.Value) -> State:
        goes, after = one_round(rounds, *before)
        return op.Greater(op.ReduceSum(op.cast(goes, torch.float32), keepdims=0), 0), *after

    if is_empty(op.result):
        return tuple(one_round(op.const(0), *state)[1])
    return _loop(op, None, op.const(True, torch.bool), state, [None] * len(state), body)


def loop_while(
    op: Builder, state: State, going: Callable[..., ir.Value], step: Callable[..., State]
) -> tuple[ir.Value, ...]:
    """The state after as many steps as it is ``going`` on, which is asked before each, and, stacked, that after each
    step. It keeps dtypes and shapes."""

    def body(_rounds: ir.Value, _asked: ir.Value, *before: ir.Value) -> State:
        after = step(*before)
        return going(*after), *after, *after

    return _loop(op, None, going(*state), state, [value.shape for value in state], body)


def _loop(
    op: Builder,
    count: ir.Value | None,
    begins: ir.Value,
    state: State,
    shapes: Sequence[ir.Shape | None],
    body: Step,
) -> tuple[ir.Value, ...]:
    rounds, asked = _number(op, torch.int64), _number(op, torch.bool)
    before = [ir.Value(name=op.new_name("state"), type=v.type, shape=s) for v, s in zip(state, shapes, strict=True)]
    graph = ir.Graph([rounds, asked, *before], [], nodes=[], opset_imports={"": op.opset}, name=op.new_name("body"))
    with op.writing_to(graph):
        graph.outputs.extend(op.Identity(value) for value in body(rounds, asked, *before))
    after = graph.outputs[1:]
    results = op.Loop(count, begins, *state, body=graph, _outputs=len(after))
    results = typed(results, after)
    for result, shape in zip(results, shapes, strict=False):
        result.shape = shape
    return results


def typed(results: ir.Value | State, within: State) -> tuple[ir.Value, ...]:
    """What a node with nested graphs gives, in the dtypes that these return."""
    results = (results,) if isinstance(results, ir.Value) else tuple(results)
    for result, value in zip(results, within, strict=True):
        result.type = value.type
    return results


def _number(op: Builder, dtype: torch.dtype) -> ir.Value:
    return ir.Value(name=op.new_name("round"), type=ir.TensorType(from_torch_dtype(dtype)), shape=ir.Shape([]))
