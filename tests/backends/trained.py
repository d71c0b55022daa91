"""What tests of training share."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Broken(nn.Module):
    """Two linear layers with a graph break between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        torch._dynamo.graph_break()
        return torch.tanh(self.second(x))


def gradients(model: nn.Module, output: Tensor) -> list[Tensor]:
    """Those of the parameters, of the sum of the squares of an output."""
    return list(torch.autograd.grad(output.square().sum(), list(model.parameters())))
