"""How far the result of an op moves where roundings move what it reads and goes through."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch

from dort_compare.dtypes import coarsest
from dort_compare.measure.noise.by_element import works_by_element
from dort_compare.measure.noise.floor import MANY, growth
from dort_compare.measure.noise.in_float64 import InFloat64
from dort_compare.measure.noise.shake import SHAKEN, SHAKES, furthest, shaken, shaken_to
from dort_compare.trace.replay import Change

_BETWEEN = 2.0
"""By how many roundings what is handed on moves: ONNX nodes do make these, or the ops of a chain in torch."""


def sensitivity(op: InFloat64, exact: torch.Tensor, dtype: torch.dtype, many: int, samples: int = 0) -> float:
    """What roundings inside a kernel may add, told by how far the exact result moves as its operands do.

    By eight roundings to float32, in which kernels compute at least, and more where they may add up so ``many`` terms;
    of a chain of ops, which torch rounds in between, by two roundings to their half-precision dtype. And by how far it
    moves as each result does that the op goes through by its definition, and that may cancel: 1 - y * y, in the
    gradient of tanh; that alone for one op that works element by element or chooses elements, and what roundings of its
    numbers move a sum in half precision. At a threshold a result jumps as far by eight as by one, not eight times
    (`_at_once_or_one`).

    Where ONNX nodes round to a coarser dtype on their way (`Replay.between`), it is what some such roundings of the
    operands move, and of what the op goes through by its definition.

    Each is the most of so many ``samples``, or of as many as show it for sure.
    """
    samples = samples or _samples(op, exact)
    if op.replay.between is not None:
        outside = _moved(op, exact, op.replay.between, samples, _BETWEEN)
        return outside + _moved_inside(op, exact, samples, _BETWEEN)
    inside = _moved_inside(op, exact, samples, SHAKEN * growth(many))
    if works_by_element(op.replay, op.node):
        return inside + furthest(exact, op.of_rounded(dtype))
    moved = max(inside, _moved(op, exact, torch.float32, samples, SHAKEN * growth(many)))
    coarse = coarsest(op.replay.dtypes()) if op.replay.is_chain else None
    return moved if coarse is None else max(moved, _moved(op, exact, coarse, samples, _BETWEEN))


def _moved(op: InFloat64, exact: torch.Tensor, dtype: torch.dtype, samples: int, roundings: float) -> float:
    """How far the exact result moves where every operand does by so many ``roundings`` of ``dtype``, or of its own
    finer one."""
    return _at_once_or_one(functools.partial(shaken, dtype), op.moved, exact, samples, roundings)


def _moved_inside(op: InFloat64, exact: torch.Tensor, samples: int, roundings: float) -> float:
    """How far the exact result moves where every result that its definition goes through does by so many ``roundings``
    to float32, or of its own finer dtype."""
    if op.replay.is_chain:
        return 0.0
    return _at_once_or_one(functools.partial(shaken_to, op.computed_in), op.moved_inside, exact, samples, roundings)


def _at_once_or_one(
    moving: Callable[[float], Change],
    move: Callable[[Change], torch.Tensor | None],
    exact: torch.Tensor,
    samples: int,
    roundings: float,
) -> float:
    """How far a result moves by so many roundings at once, or so many times as far as by one, whichever is less: over
    a threshold one jump is all there is, and next to a singular matrix many at once are out of proportion."""

    def moved_by(roundings: float) -> float:
        change = moving(roundings)
        return furthest(exact, (move(change) for _ in range(samples)))

    at_once = moved_by(roundings)
    return min(at_once, roundings * moved_by(1.0)) if at_once else 0.0


def _samples(op: InFloat64, exact: torch.Tensor) -> int:
    """How many samples show what roundings move: one of many elements, more of few. Beside hidden elements few may be
    left that move at all, or one rounding may move a whole row, as of the sum that attention's gradient subtracts."""
    return min(math.ceil(MANY / max(exact.numel(), 1)), SHAKES) if op.hidden is None else SHAKES
