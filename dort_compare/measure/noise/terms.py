"""How many terms are added up into one element of a result."""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from dort_compare.trace import Replay

aten = torch.ops.aten
_RUNNING = (aten.cumsum.default, aten.cumprod.default, aten.logcumsumexp.default)
_PRODUCTS = (
    *(aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default),
    *(aten.convolution.default, aten.convolution_backward.default),
)
_PADS = tuple(getattr(aten, f"replication_pad{n}d_backward").default for n in (1, 2, 3))
_IN_PRODUCTS = 256
"""ONNX Runtime (1.31) adds up so many terms of a matrix product one after another, then the next so many: of equal
terms it errs by 28 and 51 unit roundoffs where there are 128 and 256, and by 59 to 69 where there are up to 32768
(benchmarks/roundoffs.py)."""


def terms(replay: Replay, node: fx.Node, exact: torch.Tensor) -> int:
    """How many may go one after another into an element of ``exact``, the result of ``node``: as many as its largest
    operand has for each of its own, for a running sum all along its dimension, for a product those that torch counts.

    That is no measure for what adds up into a result as large as its operands, such as a scatter with repeated indices.
    """
    if node.target in _RUNNING and exact.ndim:
        dim = node.args[1] if len(node.args) > 1 else node.kwargs["dim"]
        return exact.shape[int(dim)]  # type: ignore[arg-type]
    if node.target in _PADS:
        counts = replay.value(node, in_float64=True, change=torch.ones_like)
        return int(counts.max()) if counts is not None and counts.numel() else 1
    numel = max(exact.numel(), 1)
    return max(replay.largest() // numel, min(_multiplied(replay, node, exact) // numel, _IN_PRODUCTS))


def _multiplied(replay: Replay, node: fx.Node, exact: torch.Tensor) -> int:
    """How often a matrix product or a convolution multiplies, by torch's counts of what each adds and multiplies."""
    made, position = node, None
    if node.target is operator.getitem:
        made, position = node.args  # type: ignore[assignment]
    arguments = replay.arguments(made) if made.target in _PRODUCTS else None
    if arguments is None:
        return 0
    args, kwargs = arguments
    if made.target is aten.convolution_backward.default:
        args = (*args[:-1], [i == position for i in range(3)])
    count = flop_registry[made.target.overloadpacket]  # type: ignore[union-attr]
    multiplied = count(*args, **kwargs, out_val=(exact,) * 3 if position is not None else exact) // 2
    return multiplied // args[9] if position == 1 else multiplied  # each group's weights are counted for all groups
