"""The attention layer of the golden log; the log holds its line numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(4, 4, bias=False) for _ in range(4))
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, hidden: Tensor) -> Tensor:
        scores = self.q(hidden) @ self.k(hidden).transpose(1, 2) * self.scale
        mixed = torch.softmax(scores, -1) @ self.v(hidden)
        return self.o(mixed) + hidden
