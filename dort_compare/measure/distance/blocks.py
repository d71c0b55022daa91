"""Tensors of one shape, a block of each at a time, small enough to stay in the processor's cache."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import torch

BLOCK = 2**17  # elements of a block: half a MiB in float32, one in float64
_FEW = 2**15  # elements
_NARROW = {torch.float32, torch.float16, torch.bfloat16}


def blocks(
    tensors: Sequence[torch.Tensor], size: int | None = None, start: int = 0
) -> Iterator[tuple[int, Sequence[torch.Tensor]]]:
    """Cut tensors of one shape into parts of at most `size` elements (None: `BLOCK`), each with its first flat index.

    The cut runs along the leading dimensions, so that a strided or expanded tensor is copied a block at a time.
    """
    size = BLOCK if size is None else size
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


class Workspace:
    """Memory for blocks, written again for every block: fresh memory costs more than what is computed in it."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._size, self._device = size, device
        self._slots: dict[object, torch.Tensor] = {}

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Workspace:
        """Memory for the blocks of a tensor."""
        return cls(min(BLOCK, tensor.numel()), tensor.device)

    def copy(self, slot: object, block: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A flat copy of a block in a real `dtype`, valid until the slot is written again; the block itself where it
        has that dtype and is flat in memory already."""
        if block.dtype == dtype and block.is_contiguous():
            return block.view(-1)
        if block.dim() == 2 and 0 < block.stride(0) < block.stride(1):
            block = block.t().contiguous().t()  # torch has a kernel that turns whole matrices
        flat = self._flat(slot, block.numel(), dtype)
        flat.view(block.shape).copy_(block)
        return flat

    def gap(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """one - other of two flat blocks, |one - other| if complex; valid until the next gap in that dtype."""
        if one.is_complex():
            return (one - other).abs()
        dtype = torch.promote_types(one.dtype, other.dtype)
        return torch.sub(one, other, out=self._flat("gap", one.numel(), dtype))

    def _flat(self, slot: object, numel: int, dtype: torch.dtype) -> torch.Tensor:
        key = slot, dtype
        if key not in self._slots:
            self._slots[key] = torch.empty(self._size, dtype=dtype, device=self._device)
        return self._slots[key][:numel]


class Floats:
    """A flat block of floats in the dtypes that it is measured in, each made where it is asked for.

    `slot` tells its copies in the workspace from those of other blocks that are measured beside it.
    """

    def __init__(self, block: torch.Tensor, slot: str, workspace: Workspace, dtype: torch.dtype) -> None:
        self._block, self._slot, self._workspace, self._dtype = block, slot, workspace, dtype

    @cached_property
    def wide(self) -> torch.Tensor:
        """The elements in float64 or complex128."""
        if self._dtype.is_complex:
            return self._block.reshape(-1).to(self._dtype)
        return self._workspace.copy(self._slot, self._block, self._dtype)

    @cached_property
    def narrow(self) -> torch.Tensor | None:
        """The elements in float32, if that holds them all exactly."""
        if self._block.dtype not in _NARROW:
            return None
        return self._workspace.copy(self._slot, self._block, torch.float32)

    @property
    def exact(self) -> torch.Tensor:
        """The elements in the narrower dtype that holds them."""
        return self.wide if self.narrow is None else self.narrow

    @cached_property
    def scale(self) -> float:
        """The largest finite |element|."""
        return finite_extent(self.exact)

    @cached_property
    def squares(self) -> float:
        """The sum of |element|^2, in float64."""
        return product(self.wide, self.wide)

    @cached_property
    def narrow_squares(self) -> float:
        """The same in float32."""
        assert self.narrow is not None
        return product(self.narrow, self.narrow)


def product(one: torch.Tensor, other: torch.Tensor) -> float:
    """The real part of <one, other>.

    Of few elements not by torch.vdot: its threads wait for one another, for milliseconds where the cores are busy.
    """
    if one.numel() > _FEW:
        return torch.vdot(one, other).real.item()
    return (one.conj() * other).real.sum().item()


def extent(values: torch.Tensor) -> float:
    """The largest |element| of a tensor that is not empty; NaN if it holds one."""
    if values.is_complex():
        return values.abs().amax().item()
    return max(-values.amin().item(), values.amax().item())  # in less time than aminmax


def finite_extent(values: torch.Tensor) -> float:
    """The largest finite |element| of a tensor that is not empty; 0 if it has none."""
    largest = extent(values)
    return largest if math.isfinite(largest) else extent(values.masked_fill(~values.isfinite(), 0))
