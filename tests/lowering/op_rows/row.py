"""One row an ATen overload: where its samples come from, the dtypes it is tested in and what counts as equal.

``infos`` names operators of torch's own sample collection (``op_db``) whose forward or backward reaches the overload,
``own`` adds samples that nothing there covers. ``units`` is the tolerance in units of the last place of the
largest element, 0 where values are only moved or chosen and so must be equal.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from op_calls import Call, Target, recorded
from torch import Tensor
from torch.testing import make_tensor

aten = torch.ops.aten
prims = torch.ops.prims

HALF = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, torch.float64, *HALF)
INTS = (torch.int64, torch.int32, torch.uint8)
BOOL = (torch.bool,)
ALL = (*FLOATS, *INTS, *BOOL)
ROUNDING = 4.0
"""A few operations, each rounded on its own."""
SUM = 8.0
MATMUL = 16.0

Sample = tuple[tuple[Any, ...], dict[str, Any]]
Samples = Callable[[torch.dtype], Iterable[Sample]]


def case(*args: Any, **kwargs: Any) -> Sample:
    return args, kwargs


def nothing(dtype: torch.dtype) -> Iterable[Sample]:
    return ()


@dataclass(frozen=True)
class Row:
    """``scale`` is the size that the largest element counts as at least: that of the terms where they cancel, 1
    where the kernel is accurate to the last place of 1 only. ``skip`` tells which recorded calls are left out,
    ``reason`` why.
    """

    target: Target
    infos: tuple[str, ...] = ()
    own: Samples = nothing
    dtypes: tuple[torch.dtype, ...] = ALL
    units: float = 0.0
    scale: float = 0.0
    skip: Callable[[Call], bool] = field(default=lambda call: False)
    reason: str = ""

    def calls(self, dtype: torch.dtype) -> Iterator[Call]:
        torch.default_generator.manual_seed(0)
        for args, kwargs in self.own(dtype):
            yield Call(self.target, args, kwargs)
        for info in self.infos:
            yield from (call for call in recorded(self.target, info, dtype) if not self.skip(call))

    def drawn(self, dtype: torch.dtype, share: float, most: int | None = None) -> list[Call]:
        """A ``share`` of the calls, ``most`` at most, by chance: every n-th may leave out a kind of them."""
        calls = list(self.calls(dtype))
        return random.Random(0).sample(calls, min(math.ceil(share * len(calls)), most or len(calls)))


def new(dtype: torch.dtype, *shape: int, low: float | None = None, high: float | None = None) -> Tensor:
    return make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)


def special(dtype: torch.dtype) -> Tensor:
    """The values at which kernels go wrong: zeros of both signs, what overflows, what is not a number."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return torch.tensor([0, 1, 2, 3, 7, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype=dtype)
    limits = torch.finfo(dtype)
    finite = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 20.0, -20.0, 100.0, -100.0, limits.max, limits.min, limits.tiny]
    return torch.tensor([*finite, torch.inf, -torch.inf, torch.nan], dtype=dtype)
