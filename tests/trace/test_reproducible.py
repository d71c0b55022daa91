"""Where torch's kernel does otherwise than torch traced, the reference does as torch traced."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from dort_compare import compare


class Average(nn.Module):
    """Adam's second moment, whose gradient is in another dtype."""

    def forward(self, average: Tensor, gradient: Tensor) -> Tensor:
        return average.mul_(0.999).addcmul_(gradient, gradient, value=0.001) * 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_product_is_not_rounded_to_the_dtype_of_its_factors(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    average, gradient = torch.rand(4, 4, generator=generator), torch.randn(4, 4, generator=generator).to(dtype)
    report = compare(Average(), (average, gradient))
    assert report.verdict == "agree", str(report)
    assert any(row.target == "prims.fma.default" for row in report.rows)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_gradient_of_a_norm_of_weights_is_compared(dtype: torch.dtype) -> None:
    report = compare(weight_norm(nn.Linear(6, 5)).to(dtype), (torch.ones(2, 6, dtype=dtype),), backward=True)
    assert report.verdict == "agree", str(report)
    assert any(row.fx_node.startswith("getitem") and row.phase == "backward" for row in report.rows)
