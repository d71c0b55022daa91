"""Casts, and values that leave their dtype, on real graphs."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from dort_compare import compare
from dort_compare.models import LlamaConfig, build


class Chain(nn.Module):
    """Overflows at the product, and nowhere else; what follows inherits."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        h = self.linear(x)
        h = h * 3e4
        return (h - 1).relu() + x


def found(report):
    return {(each.finding, str(each.target)) for each in report.precision.origins}


def test_an_overflow_is_named_where_it_begins():
    report = compare(Chain().half(), (torch.full((4, 8), 20.0).half(),))
    (origin,) = report.precision.origins
    assert (origin.finding, origin.target, origin.dtype) == ("overflows", "aten.mul.Tensor", "float16")
    assert 0 < origin.use.overflowed <= 1
    assert {each.target for each in report.precision.ranges if each.inherits} >= {"aten.sub.Tensor"}
    text = str(report)
    assert "overflows float16" in text
    assert "test_precision.py" in text
    saved = json.loads(json.dumps(report.as_json(), allow_nan=False))["precision"]
    assert saved["ranges"][0]["fx_node"] == origin.fx_node


def test_values_near_the_end_of_the_range_are_named():
    class Near(nn.Module):
        def forward(self, x):
            return (x * 3e4).mT * 1e-3

    report = compare(Near(), (torch.ones(4, 8).half(),))
    assert found(report) == {("near the range", "aten.mul.Tensor")}
    assert report.precision.closest.use.largest == pytest.approx(3e4, rel=1e-3)
    assert report.precision.closest.use.head_room == pytest.approx(1.13, abs=0.01)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_variance_that_cancels_holds_no_digit(dtype):
    class Variance(nn.Module):
        def forward(self, x):
            mean = x.mean(-1, keepdim=True)
            return (x * x).mean(-1, keepdim=True) - mean * mean

    x = (torch.randn(32, 64) * 0.05 + 8).to(dtype)
    report = compare(Variance(), (x,))
    assert ("holds no digit", "aten.sub.Tensor") in found(report)
    assert "holds no digit" in str(report)


def test_gradients_that_underflow_are_named():
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    report = compare(
        model, (torch.randn(8, 16),), backward=True, autocast=torch.float16, loss=lambda out: out.float().sum() * 3e-5
    )
    findings = {(each.phase, each.finding) for each in report.precision.origins}
    assert ("backward", "underflows") in findings


def test_casts_are_listed_with_their_dtypes():
    report = compare(nn.Linear(4, 4), (torch.randn(3, 4),), backward=True, autocast=torch.bfloat16)
    casts = [(cast.phase, cast.from_dtype, cast.to_dtype) for cast in report.precision.casts]
    assert casts.count(("forward", "float32", "bfloat16")) == 3  # the argument, the weight and the bias
    assert casts.count(("backward", "bfloat16", "float32")) == 2


def test_an_op_that_promotes_is_a_cast():
    class Promotes(nn.Module):
        def forward(self, x, y):
            return x * 2 + y

    report = compare(Promotes(), (torch.randn(3).half(), torch.randn(3)))
    (cast,) = report.precision.casts
    assert (cast.target, cast.from_dtype, cast.to_dtype) == ("aten.add.Tensor", "float16", "float32")


def test_float32_says_nothing():
    report = compare(nn.Linear(4, 4), (torch.randn(3, 4),))
    assert (report.precision.half_values, report.precision.casts) == (0, ())
    assert "half precision" not in str(report)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("half", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nothing_alarms_in_a_llama(dtype, half):
    """Not its masks either, the lowest numbers of the dtype."""
    config = LlamaConfig(hidden=32, heads=4, kv_heads=2, intermediate=48, vocabulary=50, layers=1)
    model, inputs = build("model", config, seq=16, mask=True)
    model = model.to(dtype) if half else model
    report = compare(model, inputs, backward=True, autocast=None if half else dtype)
    assert report.precision.half_values > 30
    assert report.precision.ranges == (), report.precision.ranges
    assert report.precision.closest.use.head_room > 8
