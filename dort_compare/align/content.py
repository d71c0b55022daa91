"""A sketch of what a tensor holds: near for contents that differ by rounding, far for others, blind to dtype."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dort_compare.dtypes import infinite_from

_BLOCK = 2**16  # elements sketched together
_PROJECTIONS = 4
_STEP = 40503  # odd, so that no two of the first _BLOCK blocks have the same signs
_SAMPLE = 4096
_DISTINCT = 8
_SMALL = 64
"""Integers so few are sizes, axes and positions: equal ones are the same for whoever reads them."""
_TOLERANCE = 2e-3
_HALF_TOLERANCE = 5e-2
_ROUNDING = 1e-5
_HALF_ROUNDING = 1e-2
_NEAREST = 64  # neighbours looked at
_FLOOR = 1e-30

Extremes = tuple[int, int, int]


@dataclass(frozen=True)
class Sketch:
    """What is kept of a tensor.

    kind        float, int, bool or complex
    scale       the median magnitude of its elements that are not 0
    extremes    how many elements are NaN, how many inf and -inf or stand for these
    projections of the elements, in order and squashed to -1 ... 1, on fixed random directions
    exact       a digest of the exact numbers
    is_telling  whether equal content is more than chance: false for few or repeated elements, for ranges and masks
    """

    kind: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    nbytes: int
    scale: float
    extremes: Extremes
    projections: tuple[float, ...]
    exact: str
    is_telling: bool

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def group(self) -> tuple[str, int]:
        """Values of two groups never hold the same."""
        return self.kind, self.numel

    def may_equal(self, other: Sketch) -> bool:
        """Whether it may hold the same: what is quantized to signed bytes is 128 more in unsigned ones."""
        return self.group == other.group and {self.dtype, other.dtype} != {torch.int8, torch.uint8}

    def has_elements_of(self, other: Sketch) -> bool:
        """Whether it holds the same elements in the same order, in whatever shape."""
        return self.may_equal(other) and self.exact == other.exact

    @property
    def is_small_integer(self) -> bool:
        return self.kind == "int" and self.numel <= _SMALL

    def distance(self, other: Sketch) -> float:
        """How far two contents lie apart, as a share of their scale; inf where they cannot be the same."""
        if not self.may_equal(other) or self.extremes != other.extremes:
            return math.inf
        if self.exact == other.exact:
            return 0.0
        if self.kind in ("int", "bool"):
            return math.inf
        scale = max(self.scale, other.scale)
        apart = abs(self.scale - other.scale) / scale if scale > _FLOOR else 0.0
        return max(apart, *(abs(a - b) for a, b in zip(self.projections, other.projections, strict=True)))

    def is_near(self, other: Sketch, tolerance: float) -> bool:
        return self.distance(other) <= tolerance


def tolerance(*, halved: bool, exact: bool = False) -> float:
    """How far the sketches of two right values may lie apart; ``halved`` where one went through a half precision.

    ``exact``: as far as one rounding moves them, for what nothing has been added to by earlier nodes.
    """
    loose, tight = (_HALF_TOLERANCE, _HALF_ROUNDING) if halved else (_TOLERANCE, _ROUNDING)
    return tight if exact else loose


def sketch(tensor: torch.Tensor) -> Sketch:
    """Sketches a tensor on the CPU, a block at a time."""
    kind = kind_of(tensor.dtype)
    values = torch.view_as_real(tensor.resolve_conj()) if kind == "complex" else tensor
    flat = values.detach().reshape(-1)
    limit = infinite_from(flat.dtype) if flat.is_floating_point() else math.inf
    sample, _ = _finite(flat[:: max(1, flat.numel() // _SAMPLE)], limit)
    nonzero = np.abs(sample[sample != 0])
    scale = float(np.median(nonzero)) if nonzero.size else 0.0
    sums, squares, extremes, digest = np.zeros(_PROJECTIONS), 0.0, np.zeros(3, int), hashlib.blake2b(digest_size=16)
    for number, block in enumerate(flat.split(_BLOCK)):
        finite, left_out = _finite(block, limit)
        extremes += left_out
        squashed = finite / (np.abs(finite) + (scale or 1.0))
        sums += _directions(number)[:, : squashed.size] @ squashed
        squares += float(np.square(squashed).sum())
        digest.update(_exact(block))
    return Sketch(
        kind,
        tensor.dtype,
        tuple(tensor.shape),
        tensor.numel() * tensor.element_size(),
        scale,
        tuple(extremes.tolist()),
        tuple((sums / (math.sqrt(squares) or 1.0)).tolist()),
        digest.hexdigest(),
        kind != "bool" and _is_telling(sample, kind),
    )


def kind_of(dtype: torch.dtype) -> str:
    """float, int, bool or complex."""
    if dtype.is_floating_point:
        return "float"
    return "complex" if dtype.is_complex else "bool" if dtype == torch.bool else "int"


def _finite(values: torch.Tensor, limit: float) -> tuple[np.ndarray, Extremes]:
    """In float64, 0 for what is not finite or stands for infinity, and how many those are."""
    doubled = values.double().numpy()
    ordinary = np.abs(doubled) < limit
    if ordinary.all():
        return doubled, (0, 0, 0)
    positive, negative = (int(np.count_nonzero(sign * doubled >= limit)) for sign in (1, -1))
    return np.where(ordinary, doubled, 0.0), (int(np.isnan(doubled).sum()), positive, negative)


def _exact(block: torch.Tensor) -> memoryview:
    """The numbers whatever their dtype, floats in float32 where it holds them all; 0 and -0 are one, and so is NaN."""
    if not block.is_floating_point():
        return block.to(torch.int64).contiguous().numpy().data
    narrow = block.float()
    if block.dtype == torch.float64 and not ((narrow == block) | block.isnan()).all():
        return _with_one_nan(block.numpy() + 0.0).data
    return _with_one_nan(narrow.numpy() + np.float32(0)).data


def _with_one_nan(values: np.ndarray) -> np.ndarray:
    """Of NaN there are many, and a cast gives one or another."""
    values[np.isnan(values)] = np.nan
    return values


def _directions(block: int) -> np.ndarray:
    """The random signs of a block."""
    start = block * _STEP % _BLOCK
    return _signs()[:, start : start + _BLOCK]


@functools.cache
def _signs() -> np.ndarray:
    return np.random.default_rng(0).choice([-1.0, 1.0], size=(_PROJECTIONS, 2 * _BLOCK))


def _is_telling(sample: np.ndarray, kind: str) -> bool:
    if np.unique(sample[:256]).size < _DISTINCT:
        return False
    return kind != "int" or np.unique(np.diff(sample)).size >= _DISTINCT


class ContentIndex:
    """Finds the values whose content is near."""

    def __init__(self, sketches: Mapping[str, Sketch], names: Iterable[str]) -> None:
        self._sketches = sketches
        groups: dict[tuple[str, int], list[str]] = {}
        for name in names:
            groups.setdefault(sketches[name].group, []).append(name)
        self._groups = {group: _Group([(name, sketches[name]) for name in names]) for group, names in groups.items()}

    def near(self, wanted: Sketch, tolerance: float) -> list[str]:
        """Names by distance, the nearest first, then in the order given."""
        group = self._groups.get(wanted.group)
        found = []
        for name in group.neighbours(wanted, tolerance) if group else ():
            distance = wanted.distance(self._sketches[name])
            if distance <= tolerance:
                found.append((distance, name))
        return [name for _, name in sorted(found, key=lambda pair: pair[0])]


class _Group:
    """Values of one kind and size, by scale."""

    def __init__(self, members: Sequence[tuple[str, Sketch]]) -> None:
        members = sorted(members, key=lambda member: member[1].scale)
        self._names = [name for name, _ in members]
        self._scales = np.array([sketch.scale for _, sketch in members])
        self._projections = np.array([sketch.projections for _, sketch in members])

    def neighbours(self, wanted: Sketch, tolerance: float) -> Iterator[str]:
        """At most ``_NEAREST``, those that were made first; equal contents may be many."""
        reach = (1 - tolerance) * wanted.scale, wanted.scale / (1 - tolerance) + _FLOOR
        first, last = np.searchsorted(self._scales, reach[0]), np.searchsorted(self._scales, reach[1], side="right")
        gaps = np.abs(self._projections[first:last] - np.array(wanted.projections)).max(1, initial=0.0)
        return (self._names[first + i] for i in np.flatnonzero(gaps <= tolerance)[:_NEAREST])
