"""A pool whose positions nobody asks for computes none, and is eager's value for value."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import dort_compare
from dort_compare.captures import with_bodies

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def awkward(dtype: torch.dtype) -> torch.Tensor:
    """Windows with NaN first, last, beside an infinity, everywhere; and with nothing but -inf."""
    x = torch.randn(1, 6, 6, 6, generator=torch.Generator().manual_seed(0))
    x[:, 1, ::2, ::2] = torch.nan
    x[:, 2, 1::2, 1::2] = torch.nan
    x[:, 3, 0, 0], x[:, 3, 0, 1] = torch.inf, torch.nan
    x[:, 4], x[:, 5] = torch.nan, -torch.inf
    return x.to(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32], ids=str)
@pytest.mark.parametrize("geometry", [(2,), (3, 2, 1), (2, 3, 0, 2, True)], ids=str)
def test_the_values_alone_are_eagers(dtype, geometry):
    x = awkward(dtype) if dtype.is_floating_point else torch.arange(216, dtype=dtype).view(1, 6, 6, 6)
    backend = dort_compare.DebugBackend()
    torch._dynamo.reset()
    found = torch.compile(lambda x: F.max_pool2d(x, *geometry), backend=backend)(x)
    assert torch.equal(found.nan_to_num(7.0), F.max_pool2d(x, *geometry).nan_to_num(7.0))
    assert torch.equal(found.isnan(), F.max_pool2d(x, *geometry).isnan())
    nodes = backend.graphs[0].onnx_model.graph.node
    pools = [node for node in with_bodies(nodes) if node.op_type == "MaxPool"]
    assert {len(node.output) for node in pools} == {1}
    assert [node.op_type for node in nodes].count("MaxPool") == 1
    assert [node.op_type for node in nodes].count("If") == dtype.is_floating_point


@pytest.mark.parametrize("geometry", [(3, 1, 1), (3, 2, 1, 1, True), (2, 2)], ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_largest_of_negative_infinities_and_of_the_lowest_numbers_is_one(rank, geometry):
    """Beside padding ONNX Runtime takes the one for the other."""
    x = torch.full((1, 1, *[4] * rank), -torch.inf)
    x.flatten()[-1] = torch.finfo(torch.float32).min
    pool = getattr(F, f"max_pool{rank}d")
    compiled = torch.compile(lambda x: pool(x, *geometry), backend="dort", dynamic=False)
    torch.testing.assert_close(compiled(x), pool(x, *geometry), rtol=0, atol=0)


def test_positions_beyond_what_float32_counts_are_right():
    """The larger of the two is NaN, so its place, 2**24 + 1, goes through a pool of places."""
    x = torch.zeros(1, 1, 2**24 + 2)
    x[..., -1] = torch.nan
    _, place = torch.compile(lambda x: F.max_pool2d(x, (1, 2), return_indices=True), backend="dort_debug")(x)
    assert place[..., -1].item() == 2**24 + 1


@pytest.mark.parametrize("return_indices", [False, True])
def test_a_window_of_nothing_but_padding_is_minus_infinity(return_indices):
    x = torch.randn(1, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    torch._dynamo.reset()
    found = torch.compile(lambda x: F.max_pool2d(x, 2, 1, 1, 3, return_indices=return_indices), backend="dort_debug")(x)
    values = found[0] if return_indices else found
    assert torch.equal(values, F.max_pool2d(x, 2, 1, 1, 3))
