"""How large the numbers are that an op which works element by element goes through for each."""

from __future__ import annotations

import torch
from torch import fx

from dort_compare.provenance import call_of
from dort_compare.trace import Replay


def inner_magnitude(replay: Replay, node: fx.Node) -> torch.Tensor | None:
    """At most as large, element by element, as 1 and all its operands together; None where an operand is unknown.

    1, as a sigmoid, an error function or a hyperbolic tangent is computed to the last places of that; what multiplies
    it are other operands. A gradient is a multiple of the one that it is given first.
    """
    call = call_of(node)
    given = replay.arguments(call)
    if given is None:
        return None
    is_gradient = str(call.target).partition(".")[2].partition(".")[0].endswith("_backward")
    magnitude = torch.ones(())
    for i, operand in enumerate((*given[0], *given[1].values())):
        if isinstance(operand, torch.Tensor):
            sizes = operand.abs().to(torch.promote_types(operand.dtype, torch.float32))
            magnitude = magnitude * (sizes if is_gradient and i == 0 else sizes.clamp(min=1))
        elif isinstance(operand, int | float):
            magnitude = magnitude * max(1.0, abs(operand))
    return magnitude
