"""Sums of many terms are precise, whatever the terms are, and no more nodes than that takes."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import dort_compare
from dort_compare.lowering.builder import Builder
from dort_compare.lowering.sums import _stages

EQUAL = 0.1
"""Not a sum of powers of two: each addition rounds, of equal terms in the same direction."""
SUMS = [((8192, 64), [0]), ((2, 1024, 32), [0, 1]), ((2**23,), [0]), ((64, 64, 64), [0, 1, 2]), ((4, 131072), [1]),
        ((600, 3, 20000), [0, 2]), ((3, 700, 2, 900, 2), [1, 3]), ((256, 8, 256, 3), [0, 2]), ((8, 16384), [1]),
        ((16, 4, 128, 128), [0, 2, 3]), ((20, 300, 20), [2, 0])]  # fmt: skip
PADDED = [((1031, 2), [0]), ((8191, 3), [0]), ((9998, 64), [0]), ((1_000_003,), [0])]
"""Numbers of terms that are prime, or twice a prime."""


def lowered_sum(x: torch.Tensor, dims: list[int], keepdim: bool) -> tuple[torch.Tensor, list[str]]:
    """What the backend makes of the sum, and the op types of its nodes."""
    backend = dort_compare.DebugBackend()
    torch._dynamo.reset()
    total = torch.compile(lambda x: x.sum(dims, keepdim=keepdim), backend=backend)(x)
    return total, [node.op_type for node in backend.graphs[0].onnx_model.graph.node]


@pytest.mark.parametrize(("shape", "dims"), [*SUMS, *PADDED], ids=str)
@pytest.mark.parametrize("equal", [True, False], ids=["equal", "random"])
def test_a_sum_of_n_terms_errs_by_less_than_the_root_of_n_roundings(shape, dims, equal):
    x = torch.full(shape, EQUAL) if equal else torch.rand(shape, generator=torch.Generator().manual_seed(0))
    total, ops = lowered_sum(x, dims, keepdim=False)
    exact = x.double().sum(dims)
    terms = x.numel() / exact.numel()
    assert ops == [*["Reshape", "Pad"] * ((shape, dims) in PADDED), "Reshape", "ReduceSum", "ReduceSum"]
    assert (total - exact).abs().max() < math.sqrt(terms) * 2**-24 * exact.max()


@pytest.mark.parametrize("equal", [0.1, 3.3, -7e-3])
def test_the_group_norm_of_equal_terms_is_next_to_nothing(equal):
    """What departs from the mean is multiplied by 1 / sqrt(1e-5): a blank image is nothing but that."""
    torch._dynamo.reset()
    norm = torch.compile(lambda x: F.group_norm(x, 2, eps=1e-5), backend="dort", dynamic=False)
    found = norm(torch.full((2, 4, 64, 64), equal))
    assert found.abs().max() < 32 * abs(equal) * 2**-24 * 316


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_of_a_group_norm_behind_a_mean_of_all_positions_is_noise_alone(seed):
    """The gradients that enter are alike, so that their mean is all of them."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    report = dort_compare.compare(model, (torch.randn(2, 3, 64, 64),), backward=True)
    assert report.verdict == "agree", report.first_divergence


FAR_FROM_0 = {"rows": ((4, 20_000), -1), "columns": ((20_000, 4), 0), "few": ((64, 7), 1), "all": ((30, 40, 50), None)}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("where", FAR_FROM_0)
def test_a_variance_far_from_0_has_the_digits_that_its_terms_have(where, dynamic):
    """In float32, of which 1e-3 is some 16 spacings there."""
    shape, dim = FAR_FROM_0[where]
    x = 1e3 + 1e-3 * torch.randn(shape, generator=torch.Generator().manual_seed(0))
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.var_mean(x, dim), backend="dort", dynamic=dynamic)
    exact = x.double().var(dim)
    assert ((compiled(x)[0] - exact).abs() / exact).max() < 4e-6


@pytest.mark.parametrize("equal", [0.1, 3.3, -7e-3, 1e15, 0.0])
@pytest.mark.parametrize("what", [torch.var, torch.std])
def test_equal_terms_do_not_vary(what, equal):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: what(x, -1), backend="dort", dynamic=False)
    found = compiled(torch.full((3, 3000), equal))
    assert (found <= max(abs(equal), equal**2) * 1e-12).all(), found


@pytest.mark.parametrize(("far", "apart"), [(1e22, 1e16), (1e-3, 1e-10)])
def test_a_variance_of_large_numbers_far_from_0_is_not_lost(far, apart):
    torch._dynamo.reset()
    x = (far + apart * torch.randn(100_003, dtype=torch.float64)).float()
    found = torch.compile(lambda x: x.var(0), backend="dort", dynamic=False)(x)
    torch.testing.assert_close(found, x.double().var(0).float(), rtol=1e-4, atol=0)


def test_a_variance_is_never_negative():
    torch._dynamo.reset()
    equal = 10 * torch.rand(1000, generator=torch.Generator().manual_seed(12345))
    x = equal.unsqueeze(1).repeat(1, 12345)
    assert (torch.compile(lambda x: x.var(1), backend="dort", dynamic=False)(x) >= 0).all()


def test_a_variance_that_overflows_is_infinite():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.var(-1), backend="dort", dynamic=False)
    x = torch.tensor([[1e30, -1e30], [torch.inf, 1], [torch.nan, 1]]).repeat(1, 500)
    torch.testing.assert_close(compiled(x), x.var(-1), equal_nan=True)


def test_the_variance_of_a_group_norm_is_precise_where_its_terms_are_alike():
    x = torch.tensor([3.3, -3.3]).repeat(1, 3, 2000)
    torch._dynamo.reset()
    found = torch.compile(lambda x: F.group_norm(x, 1), backend="dort", dynamic=False)(x)
    assert (found - F.group_norm(x.double(), 1)).abs().max() < 4e-7


@pytest.mark.parametrize(("shape", "dims"), [((256, 64), [0]), ((64, 4096), [1]), ((16, 3, 16), [0, 2])], ids=str)
def test_few_terms_are_summed_at_once(shape, dims):
    assert lowered_sum(torch.rand(shape), dims, keepdim=True)[1] == ["ReduceSum"]


def test_integers_are_summed_at_once():
    assert lowered_sum(torch.ones(4096, 2, dtype=torch.int32), [0], keepdim=False)[1].count("ReduceSum") == 1


SYMBOLIC = {
    "sum": (lambda x: x.sum((0, 2)), 1),
    "mean": (lambda x: x.mean((0, 2), keepdim=True), 1),
    "sum of all": (lambda x: x.sum(), 1),
    "running sum": (lambda x: x.cumsum(2), 4),
    "running sum of columns": (lambda x: x.flatten(0, 1).cumsum(0), 4),
}
"""With the share of the root of n roundings that is allowed: of running sums the largest stands for all."""


@pytest.mark.parametrize("what", SYMBOLIC)
def test_sums_over_symbolic_sizes_are_as_precise(what):
    function, share = SYMBOLIC[what]
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=dort_compare.DebugBackend(fallback=False), dynamic=True)
    for shape in ((60, 5, 3000), (2, 3, 5), (7, 2, 90_001)):
        x = torch.full(shape, EQUAL)
        found, exact = compiled(x), function(x.double())
        assert found.shape == exact.shape
        assert (found - exact).abs().max() < share * math.sqrt(x.numel()) * 2**-24 * exact.max()


def test_a_symbolic_number_of_terms_may_be_none():
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: x[torch.nonzero(x[:, 0] > 5).squeeze(1)].sum(0), backend=dort_compare.DebugBackend(), dynamic=True
    )
    assert torch.equal(compiled(torch.ones(9, 3)), torch.zeros(3))
    assert torch.equal(compiled(torch.full((4, 3), 6.0)), torch.full((3,), 24.0))


def test_one_symbolic_size_that_stays_needs_no_arithmetic():
    backend = dort_compare.DebugBackend()
    x = torch.rand(6, 8192)
    torch._dynamo.mark_dynamic(x, 0)
    total = torch.compile(lambda x: x.sum(1), backend=backend)(x)
    ops = [node.op_type for node in backend.graphs[0].onnx_model.graph.node]
    assert ops == ["Reshape", "ReduceSum", "ReduceSum"]
    assert torch.allclose(total, x.sum(1))


shapes = st.lists(st.sampled_from([1, 2, 3, 16, 257, 300, 512]), min_size=1, max_size=4).filter(
    lambda sizes: 256 < math.prod(sizes) < 10**6
)


@settings(deadline=None)
@given(shape=shapes, data=st.data())
def test_the_stages_reduce_each_dimension_once(shape, data):
    """numpy, given the stages, says what it says of the whole."""
    dims = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1).map(list))
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(shape))
    stages = _stages(Builder.of_new_graph("graph", 23), x, dims, 0)
    if stages is None:
        return
    terms = np.random.default_rng(0).integers(-8, 8, shape).astype(np.float64)
    merged = terms.reshape(stages.merged)
    padded = np.pad(merged, [(0, more - size) for more, size in zip(stages.padded, merged.shape, strict=True)])
    blocks = padded.reshape(stages.blocks).sum(tuple(stages.within)).sum(tuple(stages.across))
    assert np.array_equal(blocks, terms.sum(tuple(dims)))


@pytest.mark.parametrize("dims", [(0,), (0, 2), (2, 0), None], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_the_mean_and_what_is_kept_of_it(dims, keepdim):
    x = torch.rand(521, 3, 20000, generator=torch.Generator().manual_seed(0))
    found = torch.compile(lambda x: x.mean(dims, keepdim=keepdim), backend="dort_debug")(x)
    torch.testing.assert_close(found, x.mean(dims, keepdim=keepdim), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("shape", "dim"), [((131072,), 0), ((3, 4096, 5), 1), ((2, 8192), -1), ((9998, 2), 0)], ids=str
)
def test_a_running_sum_errs_by_less_than_the_root_of_n_roundings(shape, dim):
    torch._dynamo.reset()
    x = torch.full(shape, EQUAL)
    found, exact = torch.compile(lambda x: x.cumsum(dim), backend="dort_debug")(x), x.double().cumsum(dim)
    assert (found - exact).abs().max() < math.sqrt(x.shape[dim]) * 2**-24 * exact.max()


def test_infinities_and_nan_stay_where_they_are_in_running_sums():
    torch._dynamo.reset()
    x = torch.ones(3, 1000)
    x[0, 500], x[1, 300], x[1, 700], x[2, 999] = torch.inf, torch.inf, -torch.inf, torch.nan
    found = torch.compile(lambda x: x.cumsum(1), backend="dort_debug")(x)
    torch.testing.assert_close(found, x.cumsum(1), equal_nan=True)


@pytest.mark.parametrize("length", [2**16 - 1, 2**16, 2**20])
def test_layer_norms_of_long_rows_are_nearly_float64s(length: int) -> None:
    """ONNX Runtime's kernel adds up the terms one after another."""
    torch.manual_seed(0)
    x = torch.rand(1, length)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: F.layer_norm(x, (length,)), backend="dort")
    exact = F.layer_norm(x.double(), (length,))
    assert (compiled(x).double() - exact).abs().max() < 2e-6
