"""Random inputs by what a person writes: ``float32[2,16]``, ``ids=int64[2,128]:4000``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.graph import dtype_abbrs

from dort_compare.dtypes import dtype_name
from dort_compare.errors import UsageError

_FORM = re.compile(
    r"(?:(?P<name>[^\W\d]\w*)=)?(?P<dtype>[a-z]\w*)\[(?P<sizes>[\d\s,]*)\](?::(?:(?P<low>[^:]+):)?(?P<high>[^:]+))?"
)
_BEGINNING = re.compile(r"(?:[^\W\d]\w*=)?([a-z]\w*)\[")
_LARGEST = 2**63 - 1
"""What torch draws integers below."""
_DTYPES = {short: dtype for dtype, short in dtype_abbrs.items()} | {dtype_name(dtype): dtype for dtype in dtype_abbrs}


@dataclass(frozen=True)
class Spec:
    """A tensor to draw: ``dtype``, sizes in elements, and the range of its elements, ``high`` left out.

    Without a range, floats are drawn from the standard normal distribution, integers from 0 and 1.
    """

    name: str | None
    dtype: torch.dtype
    sizes: tuple[int, ...]
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, text: str) -> Spec:
        """Reads ``[NAME=]DTYPE[SIZES][:[LOW:]HIGH]``, where a dtype is torch's name or that of FX graphs ("f32").

        Raises UsageError for what is none, or has a range that its dtype cannot hold.
        """
        found = _FORM.fullmatch(text.strip())
        dtype = _DTYPES.get(found["dtype"]) if found else None
        try:
            if found is None or dtype is None:
                raise ValueError
            written = found["sizes"].strip()
            sizes = tuple(map(int, written.removesuffix(",").split(","))) if written else ()
            low, high = (float(end) if end else None for end in (found["low"], found["high"]))
            if high is not None and not -math.inf < (low or 0) < high < math.inf:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"{text!r} describes no input; write a dtype and sizes, float32[2,16], "
                "or for integers from 0 to 3999, of the argument ids, ids=int64[2,128]:4000"
            ) from None
        if high is not None and not _holds(dtype, low or 0, high):
            raise UsageError(f"{text!r} has a range that {found['dtype']} does not hold; choose another one")
        return cls(found["name"], dtype, sizes, low, high)

    def draw(self, generator: torch.Generator, requires_grad: bool = False) -> torch.Tensor:
        """The tensor, on the CPU; floats ask for their gradient where ``requires_grad``.

        Raises UsageError for sizes that no memory holds.
        """
        try:
            return self._drawn(generator).requires_grad_(requires_grad and self._is_inexact)
        except (RuntimeError, TypeError, OverflowError):
            raise UsageError(f"not enough memory for an input of sizes {[*self.sizes]}: make them smaller") from None

    @property
    def _is_inexact(self) -> bool:
        return self.dtype.is_floating_point or self.dtype.is_complex

    def _drawn(self, generator: torch.Generator) -> torch.Tensor:
        if not self._is_inexact:
            ends = int(self.low or 0), 2 if self.high is None else int(self.high)
            return torch.randint(*ends, self.sizes, generator=generator).to(self.dtype)
        wide = torch.complex64 if self.dtype.is_complex else torch.float32
        dtype = torch.promote_types(self.dtype, wide) if self.dtype.itemsize > 1 else wide
        if self.high is None:
            drawn = torch.randn(self.sizes, dtype=dtype, generator=generator)
        else:
            low = self.low or 0
            drawn = torch.rand(self.sizes, dtype=dtype, generator=generator) * (self.high - low) + low
        return drawn.to(self.dtype)


def _holds(dtype: torch.dtype, low: float, high: float) -> bool:
    """Whether there are numbers of ``dtype`` from ``low`` to ``high``, this end left out, and it has both."""
    if dtype.is_complex:
        return True
    if dtype.is_floating_point:
        return -torch.finfo(dtype).max <= low and high <= torch.finfo(dtype).max
    least, most = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return least <= int(low) < int(high) <= min(most + 1, _LARGEST)


def is_spec(value: Any) -> bool:
    """Whether a value is text that describes an input, or means to, rather than an argument."""
    if not isinstance(value, str):
        return False
    beginning = _BEGINNING.match(value.strip())
    return beginning is not None and (beginning[1] in _DTYPES or _FORM.fullmatch(value.strip()) is not None)
