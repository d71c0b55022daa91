"""Buffers, arguments and what is written in place."""

from __future__ import annotations

import pytest
import torch
from blocks_of_modules import Averaging, assert_clean, assert_named
from torch import Tensor, nn

from dort_compare import compare


def test_what_a_module_writes_in_inference_mode_is_not_held_against_what_was_there() -> None:
    model = nn.Sequential(nn.Conv1d(4, 4, 3), nn.BatchNorm1d(4), nn.ReLU(inplace=True)).eval()
    with torch.inference_mode():
        report = compare(model, (torch.randn(2, 4, 16),))
    assert_clean(report)
    assert max(row.distance.max_abs for row in report.modules if row.distance) < 1e-5


@pytest.mark.parametrize("is_in_place", [True, False])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_a_buffer_that_departs_alone_is_named_by_its_module(is_in_place: bool, autocast: torch.dtype | None) -> None:
    """No output or gradient depends on it."""
    right, wrong = (nn.Sequential(nn.Linear(8, 8), Averaging(factor, is_in_place)) for factor in (1.0, 1.3))
    report = compare(right, (torch.randn(4, 8),), backward=True, autocast=autocast)
    assert_clean(report)
    assert "and 4 outputs, gradients and updates, none" in str(report)
    assert [row.name for row in report.outputs if row.kind == "update"] == ["1.mean"]
    report = compare(wrong, (torch.randn(4, 8),), backward=True, autocast=autocast)
    assert_named(report, "1")
    assert report.causes[0].fx_node == "update 1.mean"


def test_an_argument_that_is_written_is_compared() -> None:
    class Writing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(3 if torch.compiler.is_compiling() else 2).sign()

    report = compare(Writing(), (torch.ones(3),))
    assert report.causes[0].fx_node == "update argument[0]"
    assert report.verdict == "diverge"
