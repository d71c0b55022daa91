"""One row a pair of values of two models: how far apart, and how much of it the second model's nodes add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch

from dort_compare.align.pair import Pair
from dort_compare.align.sides import Side
from dort_compare.dtypes import coarsest, dtype_name
from dort_compare.measure.diff.by_element import far_smaller
from dort_compare.measure.diff.draws import Draws
from dort_compare.measure.diff.two_models import Met
from dort_compare.measure.distance.distances import Distance
from dort_compare.measure.distance.metrics import distance
from dort_compare.measure.noise.floor import noise_floor
from dort_compare.measure.noise.inherited import inherited_error
from dort_compare.measure.noise.moved import Moved, MovedError, local_error_by_moving, moved_error

Status = Literal["equal", "noise", "inherits", "diverges", "random"]


@dataclass(frozen=True)
class ValueRow:
    """A pair and what was measured of it.

    status: equal (every element), noise (no further apart than rounding explains), inherits (further, but not on the
    first model's values of the operands), diverges (there too, or ``chance`` says so), random (both are drawn).
    noise_floor: the largest local distance that is noise. is_near: whether rounding explains the inherited distance.
    chance: why random numbers make it depart, in words; "" where they do not.
    """

    pair: Pair
    dtypes: tuple[str, str]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    op_types: tuple[str, str]
    inherited: Distance
    local: Distance | None
    noise_floor: float
    status: Status
    is_near: bool
    chance: str

    def to_json(self) -> dict[str, Any]:
        return {
            "first": self.pair.first,
            "second": self.pair.second,
            "how": self.pair.how,
            "dtypes": list(self.dtypes),
            "shapes": [list(shape) for shape in self.shapes],
            "op_types": list(self.op_types),
            "inherited": self.inherited.to_json(),
            "local": self.local.to_json() if self.local else None,
            "noise_floor": self.noise_floor,
            "status": self.status,
            "is_near": self.is_near,
        }


class PairJudge:
    """Turns pairs with their tensors into rows."""

    def __init__(self, first: Side, second: Side, pairs: Sequence[Pair]) -> None:
        self._sides = first, second
        self._paired = frozenset(pair.first for pair in pairs), frozenset(pair.second for pair in pairs)
        self._precision = _precisions(first, self._paired[0]), _precisions(second, self._paired[1])
        self._draws = Draws(first, second, self._paired)

    def row(self, met: Met) -> ValueRow:
        pair = met.pair
        first, second = self._sides
        dtypes = [self._precision[0].get(pair.first), self._precision[1].get(pair.second)]
        precision = coarsest([dtype for dtype in dtypes if dtype is not None])
        inherited = _distance(met.first, met.second)
        alike = met if inherited.finding is None else _with_masks_alike(met)
        whole = inherited if alike is met else _distance(alike.first, alike.second)
        local, floor, is_right = self._local(alike, whole, precision)
        is_near = inherited.equal or _is_near(alike, precision)
        is_drawn, departure = self._draws.chance(pair)
        status: Status = "noise" if is_near else "inherits"
        if is_drawn and not departure:
            status = "random"
        elif inherited.equal:
            status = "equal"
        elif is_drawn or not is_right:
            status = "diverges"
        return ValueRow(
            pair=pair,
            dtypes=(dtype_name(met.first.dtype), dtype_name(met.second.dtype)),
            shapes=(first.shape(pair.first), second.shape(pair.second)),
            op_types=(first.op_type(pair.first), second.op_type(pair.second)),
            inherited=inherited,
            local=local,
            noise_floor=floor,
            status=status,
            is_near=is_near,
            chance=departure if status == "diverges" else "",
        )

    def _local(
        self, met: Met, inherited: Distance, precision: torch.dtype | None
    ) -> tuple[Distance | None, float, bool]:
        value = met.second if met.local is None else met.local
        found = inherited if _are_equal(value, met.second) else _distance(met.first, value)
        local = None if met.local is None else found
        if found.equal:
            return local, 0.0, True
        if found.finding or found.max_abs is None:
            return local, 0.0, False
        expected, value = _comparable(met.first, value)
        moved = partial(_moved, met, value.shape, precision)
        error = local_error_by_moving(expected, value, value, moved, precision or coarsest([expected.dtype]))
        if error.is_noise and precision == expected.dtype and met.local is not None:
            error = self._of_small_elements(met, expected, value, moved) or error
        return local, error.noise_floor, error.is_noise

    def _of_small_elements(
        self, met: Met, expected: torch.Tensor, value: torch.Tensor, moved: Moved
    ) -> MovedError | None:
        """The error of elements for which the largest is no measure, where it is more than noise."""
        for small in far_smaller(self._sides, self._paired, met, value):
            sides = [each.masked_fill(~small, 0) for each in (expected, value)]
            error = moved_error(sides[0], sides[1], sides[1], partial(_moved_at, small, moved), expected.dtype)
            if not error.is_noise:
                return error
        return None


def _with_masks_alike(met: Met) -> Met:
    """With what the second model hides by -inf, or by the least number of the dtype, hidden as the first hides it."""
    local = None if met.local is None else _hidden_as(met.first, met.local)
    return replace(met, second=_hidden_as(met.first, met.second), local=local)


def _hidden_as(first: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if first.dtype != value.dtype or first.numel() != value.numel() or not value.is_floating_point():
        return value
    first = first.reshape(value.shape)
    least = torch.finfo(value.dtype).min
    return torch.where((first <= least) & (value <= least), first, value)


def _is_near(met: Met, precision: torch.dtype | None) -> bool:
    """Whether rounding explains the inherited distance, beside masks too."""
    first, second = _comparable(met.first, met.second)
    return inherited_error(first, second, partial(noise_floor, precision), precision).is_noise


def _moved(
    met: Met, shape: torch.Size, precision: torch.dtype | None, roundings: float, ways: int
) -> Iterator[torch.Tensor]:
    """The value where what it is made of moves by so many roundings, in so many ways; none where nothing makes it."""
    for seed in range(ways if met.local is not None else 0):
        for value in met.again.shaken(met.pair.second, seed, precision, roundings):
            if value.numel() == shape.numel():
                yield value.reshape(shape)


def _moved_at(small: torch.Tensor, moved: Moved, roundings: float, ways: int) -> Iterator[torch.Tensor]:
    """The ``small`` elements alone, of what ``moved`` says."""
    return (each.masked_fill(~small, 0) for each in moved(roundings, ways))


def _distance(first: torch.Tensor, second: torch.Tensor) -> Distance:
    return distance(*_comparable(first, second)).between("the first", "the second")


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one is other or torch.equal(one, other)


def _comparable(first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both in the wider dtype of a kind and the second's shape, where the elements are as many: neither is a fault."""
    if first.numel() == second.numel():
        first = first.reshape(second.shape)
    floats = first.is_floating_point() and second.is_floating_point()
    integers = not any(t.is_floating_point() or t.is_complex() or t.dtype == torch.bool for t in (first, second))
    if first.dtype != second.dtype and (floats or integers):
        wider = torch.promote_types(first.dtype, second.dtype) if floats else torch.int64
        return first.to(wider), second.to(wider)
    return first, second


def _precisions(side: Side, paired: frozenset[str]) -> Mapping[str, torch.dtype]:
    """By value, the coarsest floating dtype that it went through since the last paired values, those included.

    A value that is cast to a narrower dtype and back, with nothing computed in between, lost bits for nothing: it
    keeps the precision of its own dtype; but not where the narrow one is computed with too, or all that the node reads
    which made the wide one was raised from that dtype, as converters write it around operators that they leave in
    float32.
    """
    own = {name: s.dtype for name, s in side.sketches.items() if s.dtype.is_floating_point}
    found = dict(own)
    for node in side.flow.nodes:
        for name in node.results:
            if name in side.sketches and not _is_cast_back(side, name, own):
                through = [own[o] for o in node.operands if o in own]
                through += [found[o] for o in node.operands if o in found and o not in paired]
                coarse = coarsest([*through, *([own[name]] if name in own else [])])
                if coarse is not None and name in own:
                    found[name] = coarse
    return found


def _is_cast_back(side: Side, name: str, own: Mapping[str, torch.dtype]) -> bool:
    narrowed = _cast_of(side, name)
    source = _cast_of(side, narrowed)
    dtypes = [own.get(value) for value in (source, narrowed, name)]
    if None in dtypes or not dtypes[0] == dtypes[2] == torch.promote_types(dtypes[0], dtypes[1]):  # type: ignore[arg-type]
        return False
    maker, readers = side.node(source), side.flow.readers[narrowed]
    operands = [operand for operand in (maker.operands if maker else ()) if operand in own]
    is_raised = bool(operands) and all(own.get(_cast_of(side, operand)) == dtypes[1] for operand in operands)
    return not is_raised and all(reader.proto.op_type == "Cast" for reader, _ in readers)


def _cast_of(side: Side, name: str) -> str:
    """What a value is a cast of; "" where it is none."""
    node = side.node(name)
    return node.operands[0] if node is not None and node.proto.op_type == "Cast" else ""
