"""An op on torch's operands: when its local error is noise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from of_function import Of
from torch import Tensor, nn
from torch.nn import functional as F

import dort_compare


def test_a_model_that_cannot_run_in_float64_is_compared_without(capsys):
    torch.manual_seed(0)
    module = Of(lambda x, a, b: b(a(x).float()), a=nn.Linear(8, 8), b=nn.Linear(8, 4))
    report = dort_compare.compare(module, (torch.randn(3, 8),), backward=True, autocast=torch.bfloat16)
    assert str(report).startswith("agree")
    assert all(row.torch_vs_float64 is None for row in report.outputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batch_norm_in_training_agrees(dtype):
    """The gradient by the bias before it is what rounding leaves of a sum that is zero."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16)).to(dtype)
    assert str(dort_compare.compare(module, (torch.randn(32, 16, dtype=dtype),), backward=True)).startswith("agree")


def test_strides_are_read_in_the_memory_that_torch_traced():
    """ONNX Runtime's tensors are contiguous, torch's transposed ones are not."""

    def function(x: Tensor) -> Tensor:
        y = (x.t() * 2).as_strided((3, 2), (1, 3), 1)
        return y + 1

    report = dort_compare.compare(Of(function), (torch.randn(4, 3),))
    assert str(report).startswith("agree"), str(report)
    assert report.fallbacks == ()


def sure(labels: Tensor, margin: float) -> Tensor:
    return F.one_hot(labels, 10) * margin + torch.randn(16, 10, generator=torch.Generator().manual_seed(1))


LABELS = torch.arange(16) % 10


CANCELLING: dict[str, tuple[Callable[..., Tensor], Tensor]] = {
    "cross entropy of a sure model": (lambda x: F.cross_entropy(x, LABELS), sure(LABELS, 20.0)),
    "tanh far out": (torch.tanh, 5 + torch.rand(16, 10)),
    "gelu far below": (F.gelu, -6 + 0.1 * torch.rand(16, 10)),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), -4 + 0.05 * torch.randn(64, 32)),
    "attention that chooses": (lambda x: F.scaled_dot_product_attention(20 * x, 20 * x, x), torch.randn(1, 2, 8, 16)),
}


@pytest.mark.parametrize("case", CANCELLING)
def test_a_rounding_inside_of_an_op_is_noise_where_it_cancels(case):
    function, x = CANCELLING[case]
    report = dort_compare.compare(Of(function), (x.requires_grad_(),), backward=True)
    assert str(report).startswith("agree"), str(report)
