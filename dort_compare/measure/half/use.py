"""How a half-precision tensor uses the range and the digits of its dtype."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch

from dort_compare.dtypes import infinite_from

_SAMPLE = 4096
_SIZES = 64
"""Of how many sizes of tensors the places of the sample are kept: 32 KiB each, and a model has few."""
_NEAR_A_MASK = 2.0**-6
_MASKS = tuple(times * torch.finfo(d).max for d in (torch.float16, torch.bfloat16, torch.float32) for times in (1, 2))
"""What stands for infinity: the largest number of a dtype, or the sum of two."""
_SMALLEST_MASK = 6e4


@dataclass(frozen=True)
class Use:
    """What of a dtype a tensor uses; shares are between 0 and 1 and come of a sample where it is large.

    largest     the largest finite element, in the unit of the values; what stands for infinity, as masks do, left out
    head_room   how many powers of two lie between that and the largest number of the dtype; inf for zeros
    overflowed  share of the elements that are inf or NaN where float64 is finite
    underflowed share of the sum of float64's absolute values that lies in elements below the normal range
    wrong       share of the elements, those aside, that are as far from float64 as zero is, or further
    """

    largest: float
    head_room: float
    overflowed: float
    underflowed: float
    wrong: float


def use_of(value: torch.Tensor, exact: torch.Tensor) -> Use:
    """How ``value``, of a half-precision dtype and with at least one element, uses it; ``exact`` is its float64."""
    limit = torch.finfo(value.dtype).max
    low, high = value.aminmax()
    largest, overflowed = torch.stack((-low, high)).max().item(), 0.0
    if not largest <= infinite_from(value.dtype):
        usual = exact.isfinite() & ~_is_mask(exact)
        finite = value.isfinite()
        overflowed = (usual & ~finite).double().mean().item()
        largest = value.masked_fill(~(usual & finite), 0).abs().max().item()
    head_room = math.log2(limit / largest) if largest else math.inf
    return Use(largest, head_room, overflowed, *_digits(*_sampled(value, exact)))


def _digits(value: torch.Tensor, exact: torch.Tensor, tiny: float) -> tuple[float, float]:
    """The shares that underflowed and that are wrong."""
    usual = exact.isfinite() & (exact != 0) & value.isfinite()
    size = exact.abs().masked_fill(~usual, 0)
    if size.max() >= _SMALLEST_MASK:
        usual &= ~_is_mask(exact)
        size = size.masked_fill(~usual, 0)
    small = (value.abs() < tiny) & (size < 2 * tiny)
    wrong = usual & ~small & ((value - exact).abs() >= size)
    sums = torch.stack((size[small].sum(), size.sum(), wrong.sum(), usual.sum()))
    underflowed, total, wrongs, count = sums.tolist()
    return (underflowed / total, wrongs / count) if total else (0.0, 0.0)


def _sampled(value: torch.Tensor, exact: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    tiny = torch.finfo(value.dtype).tiny
    if value.numel() <= _SAMPLE:
        return value.double(), exact, tiny
    at = torch.unravel_index(_places(value.numel()).to(value.device), value.shape)
    return value[at].double(), exact[at], tiny


@functools.lru_cache(maxsize=_SIZES)
def _places(numel: int) -> torch.Tensor:
    """Where to look in a tensor of so many elements: the same places each time."""
    return torch.randint(numel, (_SAMPLE,), generator=torch.Generator().manual_seed(numel), device="cpu")


def _is_mask(exact: torch.Tensor) -> torch.Tensor:
    """Which elements stand for infinity: within a percent or two, as a score may have been added."""
    size = exact.abs()
    found = torch.zeros_like(size, dtype=torch.bool)
    for mask in _MASKS:
        found |= (size - mask).abs() <= _NEAR_A_MASK * mask
    return found
