"""The referee is right also where torch's own kernel is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dort_compare import compare
from dort_compare.trace import float64, model_in_float64
from dort_compare.trace.call import Call
from dort_compare.trace.float64 import call_in_float64

aten = torch.ops.aten


@pytest.mark.parametrize("target", [aten.native_batch_norm_backward.default, aten.batch_norm_backward.default], ids=str)
def test_strides_of_a_gradient_do_not_change_what_batch_norm_makes_of_it(target: Any) -> None:
    torch.manual_seed(0)
    grad = torch.randn(1, 11, 4)[:, 1:7].transpose(1, 2).unflatten(2, (3, 2))
    x = torch.randn(1, 4, 3, 2)
    mean, inverse = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0).rsqrt()
    reserved = [torch.empty(0, dtype=torch.uint8)] * (target is aten.batch_norm_backward.default)
    args = grad, x, torch.ones(4), None, None, mean, inverse, True, 0.0, [True, True, True], *reserved
    _, by_weight, by_bias = call_in_float64(target, args, {})
    normal = (x - mean.view(-1, 1, 1)) * inverse.view(-1, 1, 1)
    torch.testing.assert_close(by_weight.float(), (grad * normal).sum((0, 2, 3)))
    torch.testing.assert_close(by_bias.float(), grad.sum((0, 2, 3)))


class Tokens(nn.Module):
    """Its normalization gets for a gradient a part of the tokens', with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)
        self.outer = nn.Linear(4, 4)

    def forward(self, x: Tensor, others: Tensor) -> Tensor:
        return self.outer(torch.cat([self.norm(x).flatten(2).transpose(1, 2), others], 1))


def test_torch_is_blamed_for_its_kernel() -> None:
    torch.manual_seed(0)
    report = compare(Tokens(), (torch.randn(1, 4, 3, 2), torch.randn(1, 5, 4)), backward=True)
    if report.verdict == "agree":
        pytest.skip("torch's kernel is right here")
    first = report.causes[0]
    assert (first.fx_node, first.to_json()["further_from_float64"]) == ("native_batch_norm_backward", "torch")
    assert "torch is further from float64" in first.reason


def short(*_: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_memory_that_the_referee_lacks_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float64, "call_in_float64", short)
    with pytest.raises(torch.OutOfMemoryError):
        compare(nn.Linear(4, 4), (torch.randn(2, 4),))


def test_memory_that_the_whole_model_lacks_in_float64_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(model_in_float64, "_run_doubled", short)
    assert model_in_float64.run_in_float64(nn.Linear(4, 4), Call((torch.randn(2, 4),))).outputs == {}
    assert "nothing of the whole model is held against float64: not enough memory" in caplog.text
