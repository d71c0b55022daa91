"""All distances of a value, measured in one sweep: each must be what it is when measured alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dort_compare.measure.distance import blocks
from dort_compare.measure.distance.metrics import deviation, distance, measure

NARROW = [torch.float32, torch.float16, torch.bfloat16]
SPECIAL = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 1e-45, 1e30, -3.4e38]


@st.composite
def executions(draw: st.DrawFn) -> list[torch.Tensor]:
    """A reference, two values near it and one in float64, in some layout, with special numbers in some places."""
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    exact = torch.randn(shape, generator=generator, dtype=torch.float64) * 10.0 ** draw(st.integers(-20, 20))
    dtype = draw(st.sampled_from(NARROW))
    tensors = []
    for _ in range(3):
        near = (exact * (1 + 1e-7 * torch.randn(shape, generator=generator, dtype=torch.float64))).to(dtype)
        for _ in range(draw(st.integers(0, 2)) if near.numel() else 0):
            near.view(-1)[draw(st.integers(0, near.numel() - 1))] = draw(st.sampled_from(SPECIAL))
        tensors.append(near if draw(st.booleans()) or not tensors else tensors[0].clone())
    tensors.append(exact)
    if draw(st.booleans()):
        tensors = [tensor.transpose(0, -1) for tensor in tensors]
    if draw(st.booleans()):
        tensors = [tensor[None].expand(3, *tensor.shape) for tensor in tensors]
    return tensors


@given(executions(), st.integers(1, 9))
def test_one_sweep_is_every_measure_alone(tensors: list[torch.Tensor], size: int) -> None:
    expected, own, local, exact = tensors
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", size)
        found = measure(expected, own, local, exact)
        assert found.inherited == distance(expected, own)
        assert found.local == distance(expected, local)
    assert found.torch_vs_float64 == deviation(exact, expected)
    assert found.onnx_vs_float64 == deviation(exact, own)


@pytest.mark.parametrize("numel", [blocks.BLOCK - 1, blocks.BLOCK, blocks.BLOCK + 1, 3 * blocks.BLOCK + 5])
@pytest.mark.parametrize("place", [0, -1])
def test_a_gap_at_the_border_of_a_block_is_found(numel: int, place: int) -> None:
    exact = torch.randn(numel, dtype=torch.float64)
    expected = exact.float()
    own, local = expected.clone(), expected.clone()
    own[place], local[blocks.BLOCK // 2] = 100, -50
    found = measure(expected, own, local, exact)
    assert found.inherited.worst == (place % numel,)
    assert found.inherited.max_abs == abs(100 - expected[place].item())
    assert found.onnx_vs_float64 == abs(100 - exact[place].item())
    assert found.local is not None
    assert (found.local.different, found.local.worst) == (1, (blocks.BLOCK // 2,))
    assert found.torch_vs_float64 == (exact - expected.double()).abs().max()


@pytest.mark.parametrize(
    ("own", "finding"),
    [
        (torch.zeros(2, 3), "shape (2, 3) instead of (3,)"),
        (torch.zeros(3, dtype=torch.float16), "dtype float16 instead of float32"),
        (torch.zeros(3, dtype=torch.int64), "dtype int64 instead of float32"),
    ],
)
def test_what_is_not_alike_is_measured_all_the_same(own: torch.Tensor, finding: str) -> None:
    found = measure(torch.zeros(3), own, torch.ones(3), torch.zeros(3, dtype=torch.float64))
    assert found.inherited.finding == finding
    assert found.local is not None
    assert found.local.max_abs == 1


def test_integers_have_no_distance_from_float64() -> None:
    found = measure(torch.tensor([1]), torch.tensor([3]), None, torch.tensor([1.0], dtype=torch.float64))
    assert (found.inherited.max_abs, found.local) == (2, None)
    assert (found.torch_vs_float64, found.onnx_vs_float64) == (None, None)
