"""The grid of an affine map in ATen ops: torch (2.13) cannot trace its own, nor its gradient, for a side of 1."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch._decomp.decompositions import pw_cast_for_opmath

from dort_compare.lowering.before_autograd import traced_by


def traceable_affine_grid() -> AbstractContextManager[None]:
    """Traces the grid, and its gradient, as ops that can be: torch has the gradient in one piece."""
    return traced_by(torch.ops.aten.affine_grid_generator.default, affine_grid_generator)


@pw_cast_for_opmath
def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor

    Where ``theta`` maps the places of an image of ``size`` to, with coordinates from -1 to 1, the last side's first.
    """
    batch, _, *sides = size
    rank = len(sides)
    places = [
        _centres(side, align_corners, theta).view([-1 if i == axis else 1 for i in range(rank)]).expand(sides)
        for axis, side in enumerate(sides)
    ]
    points = torch.stack([*reversed(places), torch.ones_like(places[0])], -1).view(-1, rank + 1, 1)
    return (points * theta.mT.unsqueeze(1)).sum(-2).view(batch, *sides, rank)


def _centres(side: int, align_corners: bool, like: Tensor) -> Tensor:
    """Of the pixels along a side: the outermost lie at -1 and 1, or half a pixel further in."""
    last = 0 if side <= 1 else 1 if align_corners else (side - 1) / side
    return torch.linspace(-last, last, side, dtype=like.dtype, device=like.device)
