"""Elements far smaller than the largest of their tensor, where both models make each of its own elements alone."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator

import torch

from dort_compare.align.orders import BY_ELEMENT
from dort_compare.align.sides import Side
from dort_compare.measure.diff.two_models import Met
from dort_compare.measure.noise.floor import rounding
from dort_compare.measure.noise.small_parts import small_elements
from dort_compare.trace.dataflow_run import constant

Paired = tuple[Collection[str], Collection[str]]


def far_smaller(sides: tuple[Side, Side], paired: Paired, met: Met, value: torch.Tensor) -> Iterator[torch.Tensor]:
    """Masks, over a ``value`` and the first model's in its dtype and shape, of small elements that differ by more than
    rounding them, and the numbers that they are computed of, explains; each has elements of about one size.

    None unless one node makes either value, element by element, of operands that are paired or constant: what others
    between those round is not known.
    """
    names = met.pair.first, met.pair.second
    nodes = [side.node(name) for side, name in zip(sides, names, strict=True)]
    for side, node, known in zip(sides, nodes, paired, strict=True):
        if node is None or node.proto.op_type not in BY_ELEMENT:
            return
        if not all(operand in known or operand in side.flow.constants for operand in node.operands if operand):
            return
    inner = _inner_magnitude(sides[1], met)
    if inner is not None and inner.numel() == value.numel():
        expected = met.first.reshape(value.shape)
        yield from small_elements(expected, value, rounding(expected.dtype), inner.reshape(value.shape))


def _inner_magnitude(side: Side, met: Met) -> torch.Tensor | None:
    """The product of the operands of each element, where those below 1 count as 1, as it is shown; None where one is
    not at hand. `noise.inner_magnitude` is that of an FX node."""
    node = side.node(met.pair.second)
    names = [name for name in node.operands if name] if node else []
    constants = {name: constant(side.flow, name) for name in names if name in side.flow.constants}
    at_hand = {**constants, **met.again.operands}
    if any(name not in at_hand for name in names):
        return None
    sizes = [at_hand[name].float().abs().nan_to_num(1.0).clamp(min=1) for name in names]
    return side.shown(met.pair.second, functools.reduce(torch.mul, sizes))
