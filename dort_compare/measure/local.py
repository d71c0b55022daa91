"""Local error: what one op adds, measured on the operands that ONNX Runtime itself had."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

from dort_compare.measure.floor import rounding
from dort_compare.measure.metrics import Distance, deviation, distance
from dort_compare.trace import Replay

_EXTREME = 0.25
"""Of the dtype's largest number; from here on it stands for infinity, as masks do, and is no measure for the others."""


@dataclass(frozen=True)
class LocalError:
    """The distance of ONNX's value from torch's kernel on the same operands, and what of it is noise."""

    distance: Distance
    noise_floor: float
    is_noise: bool


def local_error(replay: Replay, node: fx.Node, value: torch.Tensor) -> LocalError | None:
    """The local error of ``value``, which ONNX Runtime computed for ``node``; None where torch cannot run the op alone.

    Noise is what the rounding of the dtype explains, and otherwise an error against float64, on the same operands, of
    at most twice torch's own and one rounding more. NaN, inf, dtypes and shapes that differ are never noise. Integers
    and booleans may differ only where a rounding of half-precision operands decides: ONNX Runtime computes those in
    float32 and leaves roundings between two nodes out.
    """
    expected = replay.value(node)
    if expected is None:
        return None
    whole = distance(expected, value)
    if whole.equal or whole.finding or whole.max_abs is None:
        return LocalError(whole, 0.0, whole.equal)
    if not expected.is_floating_point():
        return LocalError(whole, 0.0, _is_on_the_edge(replay, node, expected, value))
    expected, value = _without_extremes(expected, value)
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
    return LocalError(whole, floor, (deviation(exact, value) or 0.0) <= floor)


def _is_on_the_edge(replay: Replay, node: fx.Node, expected: torch.Tensor, value: torch.Tensor) -> bool:
    nudged = [replay.value(node, nudge=nudge) for nudge in (-1.0, 1.0)]
    firm = torch.ones_like(expected, dtype=torch.bool)
    for other in nudged:
        if other is None or other.shape != expected.shape:
            return False
        firm &= other == expected
    return not (firm & (expected != value)).any().item()


def _limit(values: torch.Tensor) -> float:
    return _EXTREME * torch.finfo(values.dtype).max


def _without_extremes(expected: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both with zeros where both are beyond the limit and equal to within rounding."""
    extreme = expected.abs() >= _limit(expected)
    if not extreme.any():
        return expected, value
    gap = (expected.double() - value.double()).abs()
    same = extreme & (gap <= rounding(expected.dtype) * expected.double().abs())
    return expected.masked_fill(same, 0), value.masked_fill(same, 0)
