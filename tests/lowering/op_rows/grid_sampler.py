"""Images read at arbitrary places."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from op_rows.row import MATMUL, Row, Sample, case, new

aten = torch.ops.aten


def places(dtype: torch.dtype, *shape: int) -> Tensor:
    """Within the image and up to three times as far, its corners and its centre."""
    grid = new(dtype, *shape, low=-3, high=3)
    grid.view(-1, shape[-1])[:3] = torch.tensor([1.0, -1.0, 0.0], dtype=dtype).unsqueeze(1)
    return grid


MODES = ((0, 0, False), (0, 1, True), (0, 2, True), (0, 2, False), (1, 0, False), (1, 2, True))
"""Interpolation, padding, whether corners are aligned."""
CUBIC = ((2, 0, False), (2, 1, True), (2, 2, False), (2, 2, True))


def sampled(dtype: torch.dtype, rank: int, modes: Iterable[tuple[int, int, bool]] = MODES) -> Iterable[Sample]:
    size = (4, 5, 3)[:rank]
    x, grid = new(dtype, 2, 3, *size), places(dtype, 2, *[3] * rank, rank)
    yield from (case(x, grid, *mode) for mode in modes)


def sampling_gradients(dtype: torch.dtype, rank: int) -> Iterable[Sample]:
    sampler = aten.grid_sampler_2d.default if rank == 2 else aten.grid_sampler_3d.default
    for args, _ in sampled(dtype, rank):
        grad = new(dtype, *sampler(*args).shape)
        yield case(grad, *args, [True, True])
    yield case(grad, *args, [False, True])


DTYPES = (torch.float32, torch.float64)
"""Half-precision numbers do not tell places apart well enough for nearest pixels to be the same; ONNX Runtime samples
float64 images from opset 20 on."""

ROWS = (
    Row(aten.grid_sampler_2d.default, (), lambda d: sampled(d, 2, (*MODES, *CUBIC)), DTYPES[:1], MATMUL),
    Row(aten.grid_sampler_2d_backward.default, (), lambda d: sampling_gradients(d, 2), DTYPES, MATMUL),
    Row(aten.grid_sampler_3d_backward.default, (), lambda d: sampling_gradients(d, 3), DTYPES, MATMUL),
    Row(aten.grid_sampler_3d.default, (), lambda d: sampled(d, 3), DTYPES, MATMUL),
)
