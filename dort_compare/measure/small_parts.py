"""Parts of a tensor far smaller than its largest element, which is no measure for them: one token may be huge."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch

from dort_compare.measure.blocks import blocks
from dort_compare.measure.floor import rounding
from dort_compare.measure.metrics import BLOCK

FAR = 16.0
"""So many times smaller is far smaller."""
_ROW = 8
"""Elements that a part has at least."""


def small_parts(expected: torch.Tensor, value: torch.Tensor) -> Iterator[torch.Tensor]:
    """Masks, over two floating tensors of one shape, of parts that lie further apart than roundings of their own.

    A part is made of trailing dimensions, as few as hold `_ROW` elements: a row, mostly. Each mask has parts of about
    one size, all far smaller than the largest element; none where there are none.
    """
    size = _size_of_part(expected.shape)
    if expected.numel() <= size:
        return
    scales, gaps = _extents(expected, value, size)
    largest = scales.max()
    apart = gaps > rounding(expected.dtype) * scales.clamp(min=torch.finfo(expected.dtype).smallest_normal)
    apart &= scales * FAR < largest
    levels = ((largest / scales.clamp(min=torch.finfo(torch.float64).tiny)).log() / math.log(FAR)).floor()
    for level in levels[apart].unique():
        mask = (apart & (levels == level)).to(expected.device)
        yield mask[:, None].expand(-1, size).reshape(expected.shape)


def _size_of_part(shape: torch.Size) -> int:
    sizes = itertools.accumulate(reversed(shape), lambda a, b: a * b, initial=1)
    return next((size for size in sizes if size >= _ROW), math.prod(shape))


def _extents(expected: torch.Tensor, value: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest finite |expected| and |expected - value| of each part, in float64, on the CPU."""
    flat = expected.reshape(-1, size), value.reshape(-1, size)
    scales, gaps = (torch.zeros(len(flat[0]), dtype=torch.float64) for _ in range(2))
    for start, parts in blocks(flat, BLOCK):
        one, other = (_as_rows(part, size).double() for part in parts)
        place = slice(start // size, start // size + len(one))
        for found, part in ((scales, one), (gaps, one - other)):
            sizes = part.abs().nan_to_num(0.0, 0.0).amax(-1).cpu()
            found[place] = torch.maximum(found[place], sizes)
    return scales, gaps


def _as_rows(part: torch.Tensor, size: int) -> torch.Tensor:
    return part.reshape(-1, min(size, part.numel()))
