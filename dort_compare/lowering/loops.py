"""ONNX loops: what is repeated as often as the values ask."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import torch

from dort_compare.lowering.builder import Builder

State = tuple[ir.Value, ...]
Going = Callable[..., ir.Value]
"""From the number of rounds done, a 0-d int64, and the state: which elements go on."""
Step = Callable[..., State]
"""From the same: the state after one more round."""


def repeated(op: Builder, state: State, going: Going, step: Step) -> State:
    """The state in which every element has stopped: one round after another, an element that has stopped stays.

    Both functions write the body of the loop, which reads what was computed before it. Their values may broadcast.
    """
    rounds = op.fresh("rounds", ir.DataType.INT64, ir.Shape(()))
    asked = op.fresh("asked", ir.DataType.BOOL, ir.Shape(()))
    before = tuple(op.fresh("state", _dtype(value)) for value in state)
    body = ir.Graph([rounds, asked, *before], [], nodes=[], opset_imports=op.graph.opset_imports, name="loop")
    with op.writing_to(body):
        goes = going(rounds, *before)
        after = [op.Where(goes, new, old) for new, old in zip(step(rounds, *before), before, strict=True)]
        some = op.Greater(op.ReduceSum(op.cast(goes, torch.float32), keepdims=0), 0)
    body.outputs.extend([some, *after])
    result = op.Loop(None, op.const(True, torch.bool), *state, body=body, _outputs=len(state))
    return (result,) if isinstance(result, ir.Value) else tuple(result)


def counted(op: Builder, rounds: ir.Value, state: State, step: Callable[..., State]) -> State:
    """The state after so many rounds (a 0-d int64), and, stacked, what ``step`` returned beyond the state in each.

    ``step`` gets the number of rounds done and the state, and writes the body of the loop. A state may change its size.
    """
    done = op.fresh("rounds", ir.DataType.INT64, ir.Shape(()))
    asked = op.fresh("asked", ir.DataType.BOOL, ir.Shape(()))
    before = tuple(op.fresh("state", _dtype(value)) for value in state)
    body = ir.Graph([done, asked, *before], [], nodes=[], opset_imports=op.graph.opset_imports, name="loop")
    with op.writing_to(body):
        after = step(done, *before)
        body.outputs.extend([op.Identity(asked), *after])
    result = op.Loop(rounds, None, *state, body=body, _outputs=len(after))
    return (result,) if isinstance(result, ir.Value) else tuple(result)


def _dtype(value: ir.Value) -> ir.DataType:
    assert value.dtype is not None
    return value.dtype
