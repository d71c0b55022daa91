"""How large the numbers are that an op which works element by element goes through for each."""

from __future__ import annotations

import torch
from torch import fx

from dort_compare.fx_graph import call_of, is_pointwise
from dort_compare.provenance import target_name
from dort_compare.trace import Replay


def inner_magnitude(replay: Replay, node: fx.Node, shape: torch.Size) -> torch.Tensor | None:
    """The product of the operands of each element of a result of that ``shape``, where those below 1 count as 1;
    broadcast to it. None where an operand is unknown.

    1, as a sigmoid, an error function or a hyperbolic tangent is computed to the last places of that; what multiplies
    it are other operands. A gradient is a multiple of the one that it is given first, however small that is.
    """
    call = call_of(node)
    given = replay.arguments(call)
    if given is None:
        return None
    is_gradient, by_element = "_backward." in target_name(call), is_pointwise(call.target)
    magnitude = torch.ones(())
    for i, operand in enumerate((*given[0], *given[1].values())):
        if isinstance(operand, torch.Tensor) and operand.numel():
            sizes = _sizes(operand)
            if not (by_element and _broadcasts(sizes.shape, shape)):
                sizes = sizes.max()
            magnitude = magnitude * (sizes if is_gradient and i == 0 else sizes.clamp(min=1))
        elif isinstance(operand, int | float):
            magnitude = magnitude * max(1.0, abs(operand))
    return magnitude


def _sizes(operand: torch.Tensor) -> torch.Tensor:
    if operand.is_complex():
        return operand.abs()
    return operand.to(torch.promote_types(operand.dtype, torch.float32)).abs()


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))
