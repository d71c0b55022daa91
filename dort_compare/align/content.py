"""A sketch of what a tensor holds: near for contents that differ by rounding, far for others, blind to dtype."""

from __future__ import annotations

import bisect
import functools
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

_BLOCK = 2**18  # elements sketched together
_PROJECTIONS = 4
_SAMPLE = 4096
_EXTREME = 0.25  # of the dtype's largest number: stands for infinity, as masks do
_DISTINCT = 8
_SMALL = 64
"""Integers so few are sizes, axes and positions: equal ones are the same for whoever reads them."""
_TOLERANCE = 2e-3
_HALF_TOLERANCE = 5e-2
_NEAREST = 64  # neighbours looked at, on either side
_FLOOR = 1e-30


@dataclass(frozen=True)
class Sketch:
    """What is kept of a tensor.

    kind        float, int, bool or complex
    scale       the median magnitude of its elements that are not 0
    extremes    how many elements are NaN, inf or stand for infinity
    projections of the elements, in order and squashed to -1 ... 1, on fixed random directions
    exact       a digest of the exact numbers
    is_telling  whether equal content is more than chance: false for few or repeated elements, for ranges and masks
    """

    kind: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    nbytes: int
    scale: float
    extremes: int
    projections: tuple[float, ...]
    exact: str
    is_telling: bool

    @property
    def group(self) -> tuple[str, int]:
        """Values of two groups never hold the same."""
        return self.kind, math.prod(self.shape)

    @property
    def is_small_integer(self) -> bool:
        return self.kind == "int" and math.prod(self.shape) <= _SMALL

    def distance(self, other: Sketch) -> float:
        """How far two contents lie apart, as a share of their scale; inf where they cannot be the same."""
        if self.group != other.group or self.extremes != other.extremes:
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


def tolerance(*, halved: bool) -> float:
    """How far the sketches of two right values may lie apart; ``halved`` where one went through a half precision."""
    return _HALF_TOLERANCE if halved else _TOLERANCE


def sketch(tensor: torch.Tensor) -> Sketch:
    """Sketches a tensor on the CPU, a block at a time."""
    kind = kind_of(tensor.dtype)
    values = torch.view_as_real(tensor.resolve_conj()) if kind == "complex" else tensor
    flat = values.reshape(-1)
    sample = _finite(flat[:: max(1, flat.numel() // _SAMPLE)])
    nonzero = sample[sample != 0].abs()
    scale = nonzero.median().item() if nonzero.numel() else 0.0
    sums, squares, extremes = torch.zeros(_PROJECTIONS, dtype=torch.float64), 0.0, 0
    for number, block in enumerate(flat.split(_BLOCK)):
        finite = _finite(block)
        extremes += _count_extremes(block)
        squashed = finite / (finite.abs() + (scale or 1.0))
        directions = _directions(number)[:, : len(block)]
        sums += directions @ squashed
        squares += squashed.dot(squashed).item()
    length = math.sqrt(squares) or 1.0
    return Sketch(
        kind,
        tensor.dtype,
        tuple(tensor.shape),
        tensor.numel() * tensor.element_size(),
        scale,
        extremes,
        tuple((sums / length).tolist()),
        _digest(flat, kind),
        kind != "bool" and _is_telling(sample, kind),
    )


def kind_of(dtype: torch.dtype) -> str:
    """float, int, bool or complex."""
    if dtype.is_floating_point:
        return "float"
    return "complex" if dtype.is_complex else "bool" if dtype == torch.bool else "int"


def _finite(values: torch.Tensor) -> torch.Tensor:
    """In float64, 0 for what is not finite or stands for infinity."""
    doubled = values.double()
    return doubled.masked_fill_(~_is_ordinary(values, doubled), 0)


def _is_ordinary(values: torch.Tensor, doubled: torch.Tensor) -> torch.Tensor:
    limit = _EXTREME * torch.finfo(values.dtype).max if values.is_floating_point() else math.inf
    return doubled.abs() < limit


def _count_extremes(values: torch.Tensor) -> int:
    return int((~_is_ordinary(values, values.double())).sum()) if values.is_floating_point() else 0


@functools.lru_cache(maxsize=8)
def _directions(block: int) -> torch.Tensor:
    """Random signs; one matrix serves many tensors."""
    generator = torch.Generator().manual_seed(block)
    return (torch.randint(2, (_PROJECTIONS, _BLOCK), generator=generator) * 2 - 1).double()


def _digest(flat: torch.Tensor, kind: str) -> str:
    """Of the numbers, whatever their dtype; 0 and -0 are one."""
    digest = hashlib.blake2b(digest_size=16)
    for block in flat.split(_BLOCK):
        digest.update((block.double() + 0.0 if kind in ("float", "complex") else block.to(torch.int64)).numpy())
    return digest.hexdigest()


def _is_telling(sample: torch.Tensor, kind: str) -> bool:
    if sample[:256].unique().numel() < _DISTINCT:
        return False
    return kind != "int" or sample.diff().unique().numel() >= _DISTINCT


class ContentIndex:
    """Finds the values whose content is near."""

    def __init__(self, sketches: Mapping[str, Sketch], names: Iterable[str]) -> None:
        self._sketches = sketches
        groups: dict[tuple[str, int], list[tuple[float, str]]] = {}
        for name in names:
            found = sketches[name]
            groups.setdefault(found.group, []).append((_logarithm(found.scale), name))
        self._groups = {group: sorted(members, key=lambda member: member[0]) for group, members in groups.items()}

    def near(self, wanted: Sketch, tolerance: float) -> list[str]:
        """Names by distance, the nearest first, then in the order given."""
        found = [
            (distance, name)
            for name in self._neighbours(wanted, tolerance)
            if (distance := wanted.distance(self._sketches[name])) <= tolerance
        ]
        return [name for _, name in sorted(found, key=lambda pair: pair[0])]

    def _neighbours(self, wanted: Sketch, tolerance: float) -> Iterator[str]:
        members = self._groups.get(wanted.group, [])
        centre = _logarithm(wanted.scale)
        middle = bisect.bisect_left(members, centre, key=lambda member: member[0])
        first, last = max(0, middle - _NEAREST), middle + _NEAREST
        reach = 2 * tolerance
        return (name for place, name in members[first:last] if abs(place - centre) <= reach)


def _logarithm(scale: float) -> float:
    return math.log(max(scale, _FLOOR))
