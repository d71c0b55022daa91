"""Networks that keep a state, in plain torch."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dort_compare.models.families.family import Member


class Recurrent(nn.Module):
    """A two-layer network read in both directions, and a head: float (batch, time, 8) to (batch, time, 4)."""

    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.cell = cell(8, 16, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0])


def _member(cell: type[nn.LSTM] | type[nn.GRU]) -> Member:
    return Member(Recurrent(cell), (torch.randn(2, 6, 8),))


MEMBERS: dict[str, Callable[[], Member]] = {
    "LSTM": functools.partial(_member, nn.LSTM),
    "GRU": functools.partial(_member, nn.GRU),
}
