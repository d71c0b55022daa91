"""How far results may lie from float64 where a model computes in half precision."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import torch
from torch import fx

from dort_compare.measure.noise.floor import MANY

_ALLOWED = 4.0


def half_floor(dtype: torch.dtype, roundings: int, numel: int) -> float:
    """What rounding explains of the distance from float64, as a share of the result's norm.

    Independent roundings add in squares: N of them make some u sqrt(N), u being the unit roundoff of ``dtype``.
    Gradients of a Llama lie at 0.15 to 0.4 of that, whatever its depth; four times as much is allowed, and more where
    a result has fewer than 64 elements, which may all happen to be small.
    """
    few = math.sqrt(max(MANY / max(numel, 1), 1.0))
    return _ALLOWED * few * math.sqrt(roundings) * torch.finfo(dtype).eps / 2


def roundings_before(graphs: Iterable[fx.Graph], rounding: Collection[str]) -> dict[str, int]:
    """By name, how many of the nodes of ``rounding`` each node depends on, across a forward and its backward graph."""
    behind: dict[str, int] = {}  # sets of rounding nodes, as bits
    bits = {name: 1 << i for i, name in enumerate(rounding)}
    for graph in graphs:
        for node in graph.nodes:
            found = behind.get(node.name, 0) if node.op == "placeholder" else bits.get(node.name, 0)
            for operand in node.all_input_nodes:
                found |= behind[operand.name]
            behind[node.name] = found
    return {name: found.bit_count() for name, found in behind.items()}


def relative_error(exact: torch.Tensor, value: torch.Tensor) -> float:
    """The norm of ``value - exact`` over that of ``exact``, where that is finite; inf where ``value`` is not."""
    finite = exact.isfinite()
    exact, value = exact.masked_fill(~finite, 0), value.double().masked_fill(~finite, 0)
    error = (value - exact).norm() / exact.norm()
    return error.item() if error.isfinite() else math.inf
