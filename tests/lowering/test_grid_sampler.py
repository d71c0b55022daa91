"""Places that no image has: those of points behind a camera, and of a model that has diverged."""

from __future__ import annotations

import math

import pytest
import torch
from op_calls import Call

from dort_compare.runtime import newest_opset
from dort_compare.runtime.providers import OLDEST_OPSET

aten = torch.ops.aten
ZEROS, BORDER, REFLECTION = 0, 1, 2
LINEAR, NEAREST, CUBIC = 0, 1, 2
FAR = (1e4, -9e3, 1e7, 1e10, -1e20, 1e30)


def assert_torchs(place: float, rank: int, mode: int, padding: int, aligned: bool, opset: int) -> None:
    """Of an image with places that have this number along some axes, and one that lies inside."""
    x = torch.arange(1.0, 13.0).reshape(1, 1, 3, 4)
    places = [[place, 0.1], [0.2, place], [0.3, 0.3], [place, place]]
    sampler = aten.grid_sampler_2d.default
    if rank == 3:
        x, sampler = torch.arange(1.0, 25.0).reshape(1, 1, 2, 3, 4), aten.grid_sampler_3d.default
        places = [[*each, 0.1] for each in places] + [[0.2, 0.3, place]]
    grid = torch.tensor(places).reshape(1, *[1] * (rank - 1), -1, rank)
    call = Call(sampler, (x, grid, mode, padding, aligned), {})
    (found,) = call.on_onnx_runtime(opset)
    torch.testing.assert_close(found, call(), equal_nan=True)


@pytest.mark.parametrize("opset", [OLDEST_OPSET, newest_opset()])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", [ZEROS, BORDER])
@pytest.mark.parametrize(("rank", "mode"), [(2, LINEAR), (2, NEAREST), (2, CUBIC), (3, LINEAR), (3, NEAREST)], ids=str)
def test_a_place_far_outside_reads_what_lies_outside(
    rank: int, mode: int, padding: int, aligned: bool, opset: int
) -> None:
    for place in FAR:
        assert_torchs(place, rank, mode, padding, aligned, opset)


@pytest.mark.parametrize("opset", [OLDEST_OPSET, newest_opset()])
@pytest.mark.parametrize("place", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("rank", "mode", "padding"),
    [
        *((2, mode, ZEROS) for mode in (LINEAR, NEAREST, CUBIC)),
        *((2, CUBIC, padding) for padding in (BORDER, REFLECTION)),
        (3, LINEAR, ZEROS),
        (3, NEAREST, ZEROS),
    ],
)
def test_a_place_that_is_no_number_reads_what_it_does_in_torch(
    rank: int, mode: int, padding: int, place: float, opset: int
) -> None:
    """Paddings that give each place a pixel give it one of torch's choice, which differs by kernel."""
    assert_torchs(place, rank, mode, padding, False, opset)
