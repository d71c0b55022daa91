"""Places that no image has: those of points behind a camera, and of a model that has diverged."""

from __future__ import annotations

import math

import pytest
import torch
from every_pair import every_pair
from op_calls import Call
from torch import Tensor

from dort_compare.lowering.sampling import BORDER, CUBIC, LINEAR, NEAREST, REFLECTION, ZEROS
from dort_compare.runtime import newest_opset
from dort_compare.runtime.opsets import OLDEST_OPSET

aten = torch.ops.aten
FAR = (1e4, -9e3, 1e7, 1e10, -1e20, 1e30)


def image_and_grid(place: float, size: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Places that have this number along some axes, and one that lies inside."""
    x = torch.arange(1.0, 1 + math.prod(size)).reshape(1, 1, *size)
    places = [[place, 0.1], [0.2, place], [0.3, 0.3], [place, place]]
    if len(size) == 3:
        places = [[*each, 0.1] for each in places] + [[0.2, 0.3, place]]
    return x, torch.tensor(places).reshape(1, *[1] * (len(size) - 1), -1, len(size))


def assert_torchs(place: float, size: tuple[int, ...], mode: int, padding: int, aligned: bool, opset: int) -> None:
    sampler = aten.grid_sampler_2d.default if len(size) == 2 else aten.grid_sampler_3d.default
    call = Call(sampler, (*image_and_grid(place, size), mode, padding, aligned), {})
    (found,) = call.on_onnx_runtime(opset)
    torch.testing.assert_close(found, call(), equal_nan=True)


SAMPLED = [
    *((size, mode) for size in ((3, 4), (1, 1), (2, 1), (1, 4096)) for mode in (LINEAR, NEAREST, CUBIC)),
    *(((2, 3, 4), mode) for mode in (LINEAR, NEAREST)),
]


@every_pair(sampled=SAMPLED, padding=(ZEROS, BORDER), aligned=(False, True), opset=(OLDEST_OPSET, newest_opset()))
def test_a_place_far_outside_reads_what_lies_outside(
    sampled: tuple[tuple[int, ...], int], padding: int, aligned: bool, opset: int
) -> None:
    size, mode = sampled
    for place in FAR:
        assert_torchs(place, size, mode, padding, aligned, opset)


@pytest.mark.parametrize("opset", [OLDEST_OPSET, newest_opset()])
@pytest.mark.parametrize("place", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("size", "mode", "padding"),
    [
        *(((3, 4), mode, ZEROS) for mode in (LINEAR, NEAREST, CUBIC)),
        *(((3, 4), CUBIC, padding) for padding in (BORDER, REFLECTION)),
        *(((2, 3, 4), mode, ZEROS) for mode in (LINEAR, NEAREST)),
    ],
)
def test_a_place_that_is_no_number_reads_what_it_does_in_torch(
    size: tuple[int, ...], mode: int, padding: int, place: float, opset: int
) -> None:
    """Paddings that give each place a pixel give it one of torch's choice, which differs by kernel."""
    assert_torchs(place, size, mode, padding, False, opset)


@pytest.mark.parametrize("place", [*FAR, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("size", [(3, 4), (2, 3, 4)])
def test_gradients_by_such_places_are_torchs(size: tuple[int, ...], place: float) -> None:
    x, grid = image_and_grid(place, size)
    rank = len(size)
    backward = aten.grid_sampler_2d_backward.default if rank == 2 else aten.grid_sampler_3d_backward.default
    grad = torch.ones(1, 1, *grid.shape[1:-1])
    call = Call(backward, (grad, x, grid, LINEAR, ZEROS, False, [True, True]), {})
    torch.testing.assert_close(tuple(call.on_onnx_runtime(newest_opset())), call(), equal_nan=True)
