"""Bags of rows where torch's kernel and its tracing disagree."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dort_compare


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backward", [False, True])
def test_a_result_that_the_kernel_leaves_out_is_no_departure(dtype: torch.dtype, backward: bool) -> None:
    model = nn.EmbeddingBag(10, 4, mode="sum").to(dtype)
    report = dort_compare.compare(model, (torch.arange(6), torch.tensor([0, 2, 2])), backward=backward, fallback=False)
    assert report.verdict == "agree", str(report)
