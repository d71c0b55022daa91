"""A layer whose tokens choose their experts, in plain torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dort_compare.models.families.family import Member


class MixtureOfExperts(nn.Module):
    """Every token is read by the two of four experts that its gate prefers; float (tokens, 16) to the same shape.

    The tokens of an expert are gathered and their results added back, so indices repeat in forward and backward.
    """

    def __init__(self, width: int = 16, experts: int = 4, chosen: int = 2) -> None:
        super().__init__()
        self.chosen = chosen
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.2)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        weights, experts = torch.topk(torch.softmax(self.gate(x), -1), self.chosen)
        weights = (weights / weights.sum(-1, keepdim=True)).flatten()
        rows = torch.arange(x.shape[0], device=x.device).repeat_interleave(self.chosen)
        order = torch.argsort(experts.flatten(), stable=True)
        picked, rows = experts.flatten()[order], rows[order]
        hidden = nn.functional.gelu(torch.einsum("tw,twh->th", x[rows], self.up[picked]))
        results = torch.einsum("th,thw->tw", hidden, self.down[picked]) * weights[order, None]
        return torch.zeros_like(x).index_add(0, rows, results.to(x.dtype))


def _member() -> Member:
    return Member(MixtureOfExperts(), (torch.randn(10, 16),))


MEMBERS: dict[str, Callable[[], Member]] = {"MoE": _member}
