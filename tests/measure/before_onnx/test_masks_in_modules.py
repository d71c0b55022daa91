"""What departs beside masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from blocks_of_modules import assert_clean, assert_named
from torch import Tensor, nn

from dort_compare import compare

aten = torch.ops.aten


class Padded(nn.Module):
    """Attention of which the last sequence is hidden whole: what it attends to there is a matter of roundings."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(8, 8)
        self.out = nn.Linear(8, 8)
        self.act = nn.ELU()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = self.query(x) @ x.transpose(-1, -2) + mask
        return self.act(self.out(scores.softmax(-1) @ x))


def half_hidden() -> tuple[Tensor, Tensor]:
    mask = torch.zeros(4, 1, 16)
    mask[2:] = -1e9
    return 3 * torch.randn(4, 16, 8), mask


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
@pytest.mark.parametrize("wrong", [1.0, 4.0])
def test_a_departure_beside_what_is_a_matter_of_roundings_is_named(
    decompose: Any, autocast: torch.dtype | None, wrong: float
) -> None:
    decompose(aten.elu.default, lambda x, *_: torch.where(x > 0, x, wrong * (x.exp() - 1)))
    report = compare(Padded(), half_hidden(), autocast=autocast)
    if wrong == 1.0:
        assert_clean(report)
    else:
        assert_named(report, "act")


class Masked(nn.Module):
    """Scores of which a quarter is masked, ``wrong`` times as large where it is compiled."""

    def __init__(self, mask: float, wrong: float) -> None:
        super().__init__()
        self.scores = nn.Linear(8, 16)
        self.mask, self.wrong = mask, wrong

    def forward(self, x: Tensor) -> Tensor:
        scores = self.scores(x) * (self.wrong if torch.compiler.is_compiling() else 1.0)
        return scores.masked_fill(torch.arange(16) >= 12, self.mask)


@pytest.mark.parametrize("wrong", [1.0, 1.3])
@pytest.mark.parametrize("mask", [-1e9, -1e4, torch.finfo(torch.float32).min, -torch.inf])
def test_an_output_that_departs_beside_masks_is_told(mask: float, wrong: float) -> None:
    report = compare(Masked(mask, wrong), (torch.randn(4, 8),))
    assert report.verdict == ("agree" if wrong == 1.0 else "diverge")
    assert [row.ok for row in report.outputs] == [wrong == 1.0]


@pytest.mark.parametrize("mask", [-1e9, -1e4, torch.finfo(torch.float32).min, -torch.inf])
def test_a_module_that_departs_beside_masks_is_named(mask: float) -> None:
    right, wrong = (nn.Sequential(Masked(mask, factor), nn.Softmax(-1), nn.Linear(16, 4)) for factor in (1.0, 1.3))
    assert_clean(compare(right, (torch.randn(4, 8),), backward=True))
    assert_named(compare(wrong, (torch.randn(4, 8),)), "0")
