"""Interpolation, which torch takes apart before autograd, stays whole where its sizes are known."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from every_pair import every_pair
from torch import Tensor
from torch.nn import functional as F

import dort_compare
from dort_compare import DebugBackend

KINDS = [
    *(("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)),
    *itertools.product(("nearest", "nearest-exact"), (1, 2, 3)),
]
SIZES: dict[str, dict[str, Any]] = {
    "scale_factor": {"scale_factor": 1.7},
    "recompute_scale_factor": {"scale_factor": 0.6, "recompute_scale_factor": True},
    "size": {"size": 9},
}


def image(rank: int) -> Tensor:
    return torch.randn(2, 3, *(7, 5, 6)[:rank], generator=torch.Generator().manual_seed(0))


def both(function: Any, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The result, and the gradient of the sum of its squares, in float64."""
    leaf = x.to(dtype, copy=True).requires_grad_()
    value = function(leaf)
    value.square().sum().backward()
    assert leaf.grad is not None
    return value.detach().double(), leaf.grad.double()


@every_pair(kind=KINDS, size=SIZES, dynamic=(False, True))
def test_values_and_gradients_are_those_of_float64(kind: tuple[str, int], size: str, dynamic: bool) -> None:
    mode, rank = kind

    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x, mode=mode, **SIZES[size])

    torch._dynamo.reset()
    backend = DebugBackend(fallback=False)
    compiled = torch.compile(resized, backend=backend, dynamic=dynamic)
    found, exact = both(compiled, image(rank), torch.float32), both(resized, image(rank), torch.float64)
    torch.testing.assert_close(found, exact, rtol=0, atol=2e-5)
    traced = [str(node.target) for graph in backend.graphs for node in graph.graph_module.graph.nodes]
    assert sum("upsample" in target for target in traced) == (0 if dynamic else 2)


@pytest.mark.parametrize(("mode", "rank"), KINDS, ids=str)
def test_another_batch_size_may_follow(mode: str, rank: int) -> None:
    """The gradient of the whole op takes no symbolic size."""

    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=2, mode=mode)

    torch._dynamo.reset()
    compiled = torch.compile(resized, backend=DebugBackend(fallback=False))
    for x in (image(rank), torch.cat([image(rank), image(rank)[:1]])):
        found, exact = both(compiled, x, torch.float32), both(resized, x, torch.float64)
        torch.testing.assert_close(found, exact, rtol=0, atol=2e-5)


@pytest.mark.parametrize("factor", [1.05, 2.05])
@pytest.mark.parametrize(("mode", "rank"), KINDS, ids=str)
def test_factors_that_sizes_do_not_show_count_as_in_torchs_kernels(mode: str, rank: int, factor: float) -> None:
    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=factor, mode=mode)

    torch._dynamo.reset()
    x = torch.randn(1, 2, *(10, 9, 8)[:rank], generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(resized, backend=DebugBackend(fallback=False), dynamic=False)
    torch.testing.assert_close(both(compiled, x, torch.float32), both(resized, x, torch.float32), rtol=0, atol=2e-5)


BYTES = torch.randint(0, 255, (1, 3, 4, 4), dtype=torch.uint8)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("x", [torch.zeros(0, 3, 4, 4), BYTES], ids=["no image", "bytes"])
def test_no_image_and_one_of_bytes_are_taken_apart(x: Tensor, mode: str) -> None:
    torch._dynamo.reset()
    backend = DebugBackend(fallback=False)
    found = torch.compile(lambda x: F.interpolate(x, scale_factor=2, mode=mode), backend=backend)(x)
    eager = F.interpolate(x, scale_factor=2, mode=mode)
    torch.testing.assert_close(found, eager, rtol=0, atol=1)  # bilinear bytes are rounded otherwise when taken apart
    assert not any("upsample" in str(node.target) for node in backend.graphs[0].graph_module.graph.nodes)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("x", [image(2), image(2)[:0], BYTES], ids=["image", "no image", "bytes"])
def test_the_ops_themselves_may_be_called(x: Tensor, dynamic: bool) -> None:
    def resized(x: Tensor) -> tuple[Tensor, ...]:
        height, width = x.shape[2:]
        nearest = torch.ops.aten.upsample_nearest2d.default(x, [2 * height, 3 * width])
        return nearest, torch.ops.aten.upsample_bilinear2d.default(x, [2 * height, width], align_corners=False)

    torch._dynamo.reset()
    compiled = torch.compile(resized, backend=DebugBackend(fallback=False), dynamic=dynamic)
    for found, eager in zip(compiled(x), resized(x), strict=True):
        torch.testing.assert_close(found, eager, rtol=0, atol=1 if x.dtype == torch.uint8 else 1e-5)


def test_infinite_pixels_come_out_as_in_eager_torch() -> None:
    """Taken apart, two neighbours of -inf make NaN of their difference."""
    torch._dynamo.reset()
    mask = torch.tensor([0.0, 0.0, -torch.inf, -torch.inf, -torch.inf]).expand(1, 1, -1)

    def finer(x: Tensor) -> Tensor:
        return F.interpolate(x, size=9, mode="linear", align_corners=False)

    compiled = torch.compile(finer, backend=DebugBackend(fallback=False), dynamic=False)
    torch.testing.assert_close(compiled(mask), finer(mask), equal_nan=True)


def test_the_exporter_of_torch_is_given_what_it_converts() -> None:
    torch._dynamo.reset()
    backend = DebugBackend(exporter="torch", fallback=False)
    compiled = torch.compile(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), backend=backend)
    exact = both(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), image(2), torch.float64)
    torch.testing.assert_close(both(compiled, image(2), torch.float32), exact, rtol=0, atol=2e-5)


def test_a_comparison_agrees() -> None:
    report = dort_compare.compare(torch.nn.Upsample(scale_factor=1.5, mode="bicubic"), (image(2),), backward=False)
    assert report.verdict == "agree", str(report)
