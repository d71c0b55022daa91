"""Bags of rows where torch's kernel and its tracing disagree."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import dort_compare
from dort_compare import DebugBackend


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backward", [False, True])
def test_a_result_that_the_kernel_leaves_out_is_no_departure(dtype: torch.dtype, backward: bool) -> None:
    model = nn.EmbeddingBag(10, 4, mode="sum").to(dtype)
    report = dort_compare.compare(model, (torch.arange(6), torch.tensor([0, 2, 2])), backward=backward, fallback=False)
    assert report.verdict == "agree", str(report)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_any_number_of_bags_is_served_with_its_gradient(mode: str, dtype: torch.dtype) -> None:
    """In the last of them nothing but padding; one is empty."""
    torch.manual_seed(0)
    eager = nn.EmbeddingBag(10, 4, mode=mode, padding_idx=3, include_last_offset=True).to(dtype)
    model = copy.deepcopy(eager)
    backend = DebugBackend(providers=["cpu"], fallback=False)
    compiled = torch.compile(model, backend=backend, dynamic=True)
    for more in ([], [9], [4, 4]):
        indices = torch.tensor([1, 2, 3, 4, *more, 3])
        offsets = torch.tensor([0, 2, 2, *range(3, len(indices)), len(indices)])
        outputs = compiled(indices, offsets), eager(indices, offsets)
        for output in outputs:
            output.square().sum().backward()
        torch.testing.assert_close(*outputs)
        torch.testing.assert_close(model.weight.grad, eager.weight.grad)
    assert len(backend.graphs) == 2


def test_a_comparison_of_largest_elements_agrees() -> None:
    model = nn.EmbeddingBag(10, 4, mode="max", padding_idx=1)
    inputs = torch.tensor([0, 1, 2, 1, 4, 4]), torch.tensor([0, 2, 2])
    report = dort_compare.compare(model, inputs, backward=True, fallback=False)
    assert report.verdict == "agree", str(report)
