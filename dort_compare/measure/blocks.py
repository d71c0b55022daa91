"""Tensors of one shape, a block of each at a time, small enough to stay in the processor's cache."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import torch

_FEW = 2**15  # elements


def blocks(tensors: Sequence[torch.Tensor], size: int, start: int = 0) -> Iterator[tuple[int, Sequence[torch.Tensor]]]:
    """Cut tensors of one shape into parts of at most `size` elements, each with its first flat index.

    The cut runs along the leading dimensions, so that a strided or expanded tensor is copied a block at a time.
    """
    first = tensors[0]
    if first.numel() <= size:
        if first.numel():
            yield start, tensors
        return
    row = first.numel() // len(first)
    rows = max(1, size // row)
    for i in range(0, len(first), rows):
        part = i if row > size else slice(i, i + rows)
        yield from blocks([tensor[part] for tensor in tensors], size, start + i * row)


class Floats:
    """A flat block in float64 or complex128, with what more than one distance from it needs."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    @cached_property
    def scale(self) -> float:
        """The largest finite |element|."""
        return finite_extent(self.values)

    @cached_property
    def squares(self) -> float:
        """The sum of |element|^2."""
        return product(self.values, self.values)


def product(one: torch.Tensor, other: torch.Tensor) -> float:
    """The real part of <one, other>.

    Of few elements not by torch.vdot: its threads wait for one another, for milliseconds where the cores are busy.
    """
    if one.numel() > _FEW:
        return torch.vdot(one, other).real.item()
    return (one.conj() * other).real.sum().item()


class Workspace:
    """Memory for blocks, written again for every block: fresh memory costs more than what is computed in it."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._raised = [torch.empty(size, dtype=torch.float64, device=device) for _ in range(3)]

    def raised(self, slot: int, block: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """A flat copy of a block in `dtype`, valid until the slot (0 or 1) is asked for again; the block itself where
        it has that dtype already."""
        if block.dtype == dtype or dtype != torch.float64:
            return block.reshape(-1).to(dtype)
        flat = self._raised[slot][: block.numel()]
        flat.view(block.shape).copy_(block)
        return flat

    def gap(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """one - other of two flat blocks, |one - other| if complex; valid until the next gap."""
        if one.is_complex():
            return (one - other).abs()
        return torch.sub(one, other, out=self._raised[2][: one.numel()])


def extent(values: torch.Tensor) -> float:
    """The largest |element| of a tensor that is not empty; NaN if it holds one."""
    if values.is_complex():
        return values.abs().amax().item()
    return max(-values.amin().item(), values.amax().item())  # in less time than aminmax


def finite_extent(values: torch.Tensor) -> float:
    """The largest finite |element| of a tensor that is not empty; 0 if it has none."""
    largest = extent(values)
    return largest if math.isfinite(largest) else extent(values.masked_fill(~values.isfinite(), 0))
