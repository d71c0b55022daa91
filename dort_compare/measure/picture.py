"""What the elements of a value look like on both sides: histograms, the worst elements, and where errors lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dort_compare.measure.distance.distances import Number
from dort_compare.measure.distance.integers import as_floats, gaps

Array = npt.NDArray[np.float64]
_SAMPLE = 2**14
_BINS = 40
_WORST = 8
_PARTS = 32
_POWERS = (-40, 40)
_TOO_LARGE = 2**53
"""The first integer that a float64, as a browser has it, does not tell from its neighbours."""


@dataclass(frozen=True)
class Element:
    """One element: its index and what each side has there; ``exact`` is float64's, None where there is none."""

    index: tuple[int, ...]
    torch: Number
    onnx: Number
    exact: Number | None

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, NaN and infinities as the strings "nan", "inf" and "-inf", and so integers from 2^53 on, which
        a browser would round."""
        numbers = {"torch": self.torch, "onnx": self.onnx, "exact": self.exact}
        return {"index": list(self.index), **{name: _told(value) for name, value in numbers.items()}}


@dataclass(frozen=True)
class Picture:
    """Elements of one value, torch's against ONNX's on its own earlier values.

    low, high   range of the finite elements of both; ``torch`` and ``onnx`` count theirs in 40 equal parts of it
    powers      how many |torch - onnx| begin with each power of ten: (power, count)
    equal       how many elements are equal; ``unfinite`` how many are not, and NaN or inf on a side
    worst       the elements that lie furthest apart, up to eight
    along       by dimension, the largest |torch - onnx| in each of up to 32 parts of it
    looked_at   how many elements were looked at of ``numel``: large tensors are thinned out evenly
    """

    low: float
    high: float
    torch: tuple[int, ...]
    onnx: tuple[int, ...]
    powers: tuple[tuple[int, int], ...]
    equal: int
    unfinite: int
    worst: tuple[Element, ...]
    along: tuple[tuple[float, ...], ...]
    looked_at: int
    numel: int

    def to_json(self) -> dict[str, Any]:
        along = [[_told(each) for each in parts] for parts in self.along]
        worst = [each.to_json() for each in self.worst]
        return {**asdict(self), "worst": worst, "along": along}


def picture(expected: torch.Tensor, own: torch.Tensor, exact: torch.Tensor | None, at: Sequence[int] | None) -> Picture:
    """The picture of two real tensors of one shape with at least one element; ``at`` is the index of the worst."""
    steps = _thinned(expected.shape)
    sides = [tensor[steps].cpu() for tensor in (expected, own)]
    one, other = (side.detach().resolve_neg().double().numpy() for side in sides)
    gap = _gap(sides, one, other)
    finite = [side[np.isfinite(side)] for side in (one, other)]
    known = [side for side in finite if side.size]
    low, high = (min(map(np.min, known)), max(map(np.max, known))) if known else (0.0, 0.0)
    places = dict.fromkeys([tuple(at)] if at is not None else []) | dict.fromkeys(_furthest(gap, steps))
    return Picture(
        low=float(low),
        high=float(high),
        torch=_histogram(finite[0], low, high),
        onnx=_histogram(finite[1], low, high),
        powers=_powers(gap),
        equal=int(np.count_nonzero(gap == 0)),
        unfinite=int(np.count_nonzero(np.isinf(gap))),
        worst=tuple(_element(index, expected, own, exact) for index in list(places)[:_WORST]),
        along=tuple(_along(gap, dimension) for dimension in range(gap.ndim)),
        looked_at=gap.size,
        numel=expected.numel(),
    )


def _gap(sides: Sequence[torch.Tensor], one: Array, other: Array) -> Array:
    """|torch - onnx| of each element in float64: 0 where they are equal alone, inf where one of them is not finite."""
    if not any(side.is_floating_point() for side in sides):
        return as_floats(gaps(*sides)).numpy()
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.nan_to_num(np.abs(one - other), nan=math.inf, posinf=math.inf)
    return np.where(same, 0.0, apart)


def _thinned(shape: Sequence[int]) -> tuple[slice, ...]:
    """Every how many-th index of each dimension is looked at: the longest are thinned out first."""
    steps = [1] * len(shape)

    def left(dimension: int) -> int:
        return -(-shape[dimension] // steps[dimension])

    while math.prod(map(left, range(len(shape)))) > _SAMPLE:
        steps[max(range(len(shape)), key=left)] *= 2
    return tuple(slice(None, None, step) for step in steps)


def _histogram(finite: Array, low: float, high: float) -> tuple[int, ...]:
    """Finite elements in equal parts of the range; all in the first where it has no width, or one beyond float64."""
    width = float(high) - float(low)
    if not 0 < width < math.inf:
        return (finite.size, *[0] * (_BINS - 1))
    parts = ((finite - low) / width * _BINS).astype(int).clip(0, _BINS - 1)
    return tuple(np.bincount(parts, minlength=_BINS).tolist())


def _powers(gap: Array) -> tuple[tuple[int, int], ...]:
    apart = gap[(gap > 0) & np.isfinite(gap)]
    powers, counts = np.unique(np.floor(np.log10(apart)).clip(*_POWERS).astype(int), return_counts=True)
    return tuple(zip(powers.tolist(), counts.tolist(), strict=True))


def _furthest(gap: Array, steps: Sequence[slice]) -> list[tuple[int, ...]]:
    """The places of the largest gaps, in the tensor that was thinned out."""
    flat = gap.ravel()
    least = np.partition(flat, -_WORST)[-_WORST] if flat.size > _WORST else 0.0
    far = np.flatnonzero((flat >= least) & (flat > 0))
    found = far[np.argsort(-flat[far], kind="stable")][:_WORST]
    places = zip(*np.unravel_index(found, gap.shape), strict=True) if gap.ndim else [()] * len(found)
    return [tuple(int(i) * s.step for i, s in zip(place, steps, strict=True)) for place in places]


def _element(index: tuple[int, ...], expected: torch.Tensor, own: torch.Tensor, exact: torch.Tensor | None) -> Element:
    return Element(index, _at(expected, index), _at(own, index), None if exact is None else _at(exact, index))


def _at(tensor: torch.Tensor, index: tuple[int, ...]) -> Number:
    number = tensor[index].item()
    return int(number) if isinstance(number, bool) else number


def _along(gap: Array, dimension: int) -> tuple[float, ...]:
    line = gap.max(tuple(other for other in range(gap.ndim) if other != dimension))
    return tuple(float(part.max()) for part in np.array_split(line, min(_PARTS, len(line))))


def _told(number: Number | None) -> Number | str | None:
    if isinstance(number, int):
        return number if abs(number) < _TOO_LARGE else str(number)
    return number if number is None or math.isfinite(number) else str(number)
