"""ONNX's If: nodes of which one of two groups is computed.

What either reads of the values around it, it may just read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from dort_compare.lowering.builder import Builder
from dort_compare.lowering.loops import typed

Branch = Callable[[], Sequence[ir.Value]]
"""Writes nodes, and returns what the last of them compute."""


def either(op: Builder, condition: ir.Value, then: Branch, otherwise: Branch) -> tuple[ir.Value, ...]:
    """What ``then`` writes where the ``condition``, a 0-d boolean, holds, else what ``otherwise`` writes: as many, and
    of the same dtypes."""
    branches = [_branch(op, write) for write in (then, otherwise)]
    first = branches[0].outputs
    results = op.If(condition, then_branch=branches[0], else_branch=branches[1], _outputs=len(first))
    return typed(results, first)


def _branch(op: Builder, write: Branch) -> ir.Graph:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": op.opset}, name=op.new_name("branch"))
    with op.writing_to(graph):
        graph.outputs.extend(write())
    return graph
