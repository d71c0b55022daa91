"""Local error: what one op adds, measured on the operands that ONNX Runtime itself had."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx

from dort_compare.measure.floor import rounding
from dort_compare.measure.metrics import Distance, deviation, distance
from dort_compare.measure.ties import is_a_tie
from dort_compare.trace import Replay

_EXTREME = 0.25
"""Of the dtype's largest number; from here on it stands for infinity, as masks do, and is no measure for the others."""
_SHAKEN = 8.0
"""How much more a right kernel may err than its result moves where every operand moves by one rounding."""


@dataclass(frozen=True)
class LocalError:
    """The distance of ONNX's value from torch's kernel on the same operands, and what of it is noise."""

    distance: Distance
    noise_floor: float
    is_noise: bool


def local_error(replay: Replay, node: fx.Node, value: torch.Tensor) -> LocalError | None:
    """The local error of ``value``, which ONNX Runtime computed for ``node``; None where torch cannot run the op alone.

    Noise is what the rounding of the dtype explains, and otherwise an error against float64, on the same operands, of
    at most twice torch's own and one rounding more or, for an op that combines elements and so may cancel, of eight
    times what a rounding of each of the operands moves (an error that is backward stable; Higham, Accuracy and
    Stability of Numerical Algorithms, 1.5). NaN, inf, dtypes and shapes that differ are never noise. Integers
    and booleans may differ only where a rounding of half-precision operands decides: ONNX Runtime computes those in
    float32 and leaves roundings between two nodes out; and where equal elements are sorted, whose order torch leaves
    open.
    """
    expected = replay.value(node)
    if expected is None:
        return None
    whole = distance(expected, value)
    if whole.equal or whole.finding or whole.max_abs is None:
        return LocalError(whole, 0.0, whole.equal)
    if not expected.is_floating_point():
        is_open = is_a_tie(replay, node, expected, value) or _is_on_the_edge(replay, node, expected, value)
        return LocalError(whole, 0.0, is_open)
    expected, value = without_extremes(expected, value)
    found = whole if whole.scale and whole.scale < _limit(expected) else distance(expected, value)
    scale = float(found.scale or 0)
    floor = rounding(expected.dtype) * scale
    if found.max_abs is not None and found.max_abs <= floor:
        return LocalError(whole, floor, is_noise=True)
    exact = replay.value(node, in_float64=True)
    if exact is None or exact.shape != expected.shape:
        return LocalError(whole, floor, is_noise=False)
    exact = exact.masked_fill(exact.abs() >= _limit(expected), 0)
    floor = max(floor, 2 * (deviation(exact, expected) or 0.0) + torch.finfo(expected.dtype).eps * scale)
    floor = max(floor, _SHAKEN * _moved(replay, node, exact))
    return LocalError(whole, floor, (deviation(exact, value) or 0.0) <= floor)


def _moved(replay: Replay, node: fx.Node, exact: torch.Tensor) -> float:
    """How far a rounding of each operand moves the exact result; 0 for what works element by element."""
    if isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags:
        return 0.0
    moved = replay.value(node, in_float64=True, change=_shaken())
    return 0.0 if moved is None or moved.shape != exact.shape else deviation(exact, moved) or 0.0


def _shaken() -> Callable[[torch.Tensor], torch.Tensor]:
    """Moves every element by one rounding of float32, or of float64 where that is its dtype, up or down at random."""
    generator = torch.Generator().manual_seed(0)

    def shake(value: torch.Tensor) -> torch.Tensor:
        unit = torch.finfo(torch.promote_types(value.dtype, torch.float32)).eps
        signs = torch.randint(2, value.shape, generator=generator).to(value.device) * 2 - 1
        return value.double() * (1 + unit * signs)

    return shake


def _is_on_the_edge(replay: Replay, node: fx.Node, expected: torch.Tensor, value: torch.Tensor) -> bool:
    nudged = [replay.value(node, change=_nudged(first)) for first in (-1, 1)]
    firm = torch.ones_like(expected, dtype=torch.bool)
    for other in nudged:
        if other is None or other.shape != expected.shape:
            return False
        firm &= other == expected
    return not (firm & (expected != value)).any().item()


def _nudged(first: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Moves half-precision operands by one unit in the last place, one up and the next down."""
    directions = itertools.cycle((first, -first))

    def nudge(value: torch.Tensor) -> torch.Tensor:
        if value.dtype not in (torch.float16, torch.bfloat16):
            return value
        return value.float() * (1 + next(directions) * torch.finfo(value.dtype).eps)

    return nudge


def _limit(values: torch.Tensor) -> float:
    return _EXTREME * torch.finfo(values.dtype).max


def without_extremes(expected: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both with zeros where both are beyond the limit and equal to within rounding."""
    extreme = expected.abs() >= _limit(expected)
    if not extreme.any():
        return expected, value
    gap = (expected.double() - value.double()).abs()
    same = extreme & (gap <= rounding(expected.dtype) * expected.double().abs())
    return expected.masked_fill(same, 0), value.masked_fill(same, 0)
