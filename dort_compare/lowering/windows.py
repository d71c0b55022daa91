"""Sums over windows along one dimension, where they are known as the graph is lowered; each output has its own."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
import torch
from torch import Tensor

from dort_compare.lowering.builder import Builder

_SHORT = 4
"""Windows of so few elements are added up element by element."""


@dataclass(frozen=True)
class Windows:
    """For each output its elements, (outputs, length): where they stand, their weights, and which are there at all."""

    places: Tensor
    weights: Tensor
    present: Tensor

    @classmethod
    def between(cls, starts: Sequence[int], ends: Sequence[int]) -> Windows:
        """Windows of neighbours with weight 1; those shorter than the longest repeat their last element, as absent."""
        first, last = torch.tensor(starts).unsqueeze(1), torch.tensor(ends).unsqueeze(1) - 1
        places = first + torch.arange(int((last - first).max()) + 1)
        return cls(torch.minimum(places, last), torch.ones(places.shape, dtype=torch.float64), places <= last)

    @classmethod
    def weighted(cls, places: Tensor, weights: Tensor) -> Windows:
        return cls(places, weights.double(), torch.ones(places.shape, dtype=torch.bool))

    def column(self, i: int) -> Windows:
        """The element number ``i`` of every window, as tensors (outputs,)."""
        return Windows(self.places[:, i], self.weights[:, i], self.present[:, i])

    def transposed(self, size: int) -> Windows:
        """From each of the ``size`` elements to the outputs that it enters: the windows of the gradient."""
        outputs = torch.arange(len(self.places)).unsqueeze(1).expand_as(self.places)[self.present]
        elements, weights = self.places[self.present], self.weights[self.present]
        order = torch.argsort(elements, stable=True)
        counts = torch.bincount(elements, minlength=size)
        column = torch.arange(len(order)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        length = max(int(counts.max()), 1)
        places = torch.zeros(size, length, dtype=torch.int64)
        spread = torch.zeros(size, length, dtype=torch.float64)
        places[elements[order], column] = outputs[order]
        spread[elements[order], column] = weights[order]
        return Windows(places, spread, torch.arange(length) < counts.unsqueeze(1))


def windowed(op: Builder, x: ir.Value, dim: int, places: Tensor) -> ir.Value:
    """The elements of every window, in a new dimension after ``dim``."""
    return op.Gather(x, op.const(places.tolist()), axis=dim)


def window_sums(op: Builder, x: ir.Value, dim: int, rank: int, windows: Windows, dtype: torch.dtype) -> ir.Value:
    """The weighted sum of each window along ``dim`` of ``rank``; an absent element does not count, even if infinite.

    ONNX Runtime's CPU provider gathers rows as a whole but their elements one by one, so these change places with those
    for a while, unless in float64, for which its Transpose is slow. Of short windows it adds up whole tensors faster.
    """
    if dim == rank - 1 > 0 and dtype == torch.float32 and not op.on_cuda:
        turned = [*range(rank - 2), rank - 1, rank - 2]
        sums = window_sums(op, op.Transpose(x, perm=turned), dim - 1, rank, windows, dtype)
        return op.Transpose(sums, perm=turned)
    length = windows.places.shape[1]
    if length <= _SHORT:
        columns = [windows.column(i) for i in range(length)]
        return functools.reduce(op.Add, [_weighted(op, x, dim, rank, column, dtype) for column in columns])
    return op.ReduceSum(_weighted(op, x, dim, rank, windows, dtype), [dim + 1], keepdims=0)


def _weighted(op: Builder, x: ir.Value, dim: int, rank: int, windows: Windows, dtype: torch.dtype) -> ir.Value:
    """The elements of every window by their weights; of a column of windows no dimension of its own."""
    taken = windowed(op, x, dim, windows.places)
    shape = (*windows.places.shape, *[1] * (rank - dim - 1))
    if not windows.present.all():
        taken = op.Where(op.const(windows.present.reshape(shape).tolist(), torch.bool), taken, op.const(0, dtype))
    if (windows.weights != 1).any():
        taken = op.Mul(taken, op.const(windows.weights.reshape(shape).tolist(), dtype))
    return taken
