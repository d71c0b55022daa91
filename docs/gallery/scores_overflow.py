"""Attention that scales its scores after the product, with a channel of outliers."""

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        scores = self.query(x) @ self.key(x).transpose(-2, -1)
        return (scores / x.shape[-1] ** 0.5).softmax(-1) @ self.value(x)


def make() -> tuple[nn.Module, Tensor]:
    model = Attention(64)
    with torch.no_grad():
        model.query.weight[0] *= 300
        model.key.weight[0] *= 300
    return model, torch.randn(2, 16, 64)


@torch.no_grad()
def check() -> None:
    torch.manual_seed(0)
    model, x = make()
    query, key = model.query(model.norm(x)), model.key(model.norm(x))
    scores = query @ key.transpose(-2, -1)
    beyond = scores.abs() > torch.finfo(torch.float16).max
    print(
        f"{int(beyond.sum())} of {scores.numel()} scores lie beyond float16, {int(beyond.any(-1).sum())} rows have one"
    )
    print("after the scaling the largest is below", int(2 ** (scores.abs().max() / 8).log2().ceil()))


if __name__ == "__main__":
    check()
